package buffered

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// small is how much of each body is not counted, so that short requests are served whatever others send.
const small = 16 << 10

// retryAfter is when a refused sender may try again.
const retryAfter = time.Second

// Budget is the memory of all bodies that are held at once. It is safe for concurrent use. The nil Budget has no bound.
type Budget struct {
	size int64

	mu   sync.Mutex
	used int64
}

// New returns a Budget of size bytes.
func New(size int64) *Budget { return &Budget{size: size} }

// Share is what one request holds of a Budget. Release may be called while another goroutine does; ReadAll is one
// goroutine's.
type Share struct {
	budget *Budget

	mu     sync.Mutex
	held   int64 // counted against the budget
	buffer int64 // of the bodies that were read
}

// Open returns the empty share of a request.
func (b *Budget) Open() *Share { return &Share{budget: b} }

// ErrFull reports whether err is the refusal of a body for which the budget has nothing left.
func ErrFull(err error) bool { return errors.Is(err, errFull) }

var errFull = errors.New("the budget of buffered bodies is used up")

func full() error {
	return &executor.Error{
		Code: executor.Unavailable, Message: "the server holds too many large requests (http.max_buffered_bytes): try again", RetryAfter: retryAfter, Err: errFull,
	}
}

// fits reports whether n more bytes would fit now.
func (b *Budget) fits(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.size
}

// grow counts n more bytes of buffer.
func (s *Share) grow(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := max(0, s.buffer+n-small) - s.held
	if b := s.budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.used+more > b.size {
			return full()
		}
		b.used += more
	}
	s.buffer += n
	s.held += more
	return nil
}

// ReadAll reads r to its end into memory that counts against the budget until Release. announced is the length that the
// sender has announced, -1 if none: a body that cannot fit now is refused unread. Codes: unavailable; errors of r.
func (s *Share) ReadAll(r io.Reader, announced int64) ([]byte, error) {
	if announced > small && !s.budget.fits(announced-small) {
		return nil, full()
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			size := max(512, 2*cap(body))
			if announced >= int64(cap(body)) {
				size = int(min(int64(size), announced+1)) // one more, to meet the end without growing
			}
			if err := s.grow(int64(size - cap(body))); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is the end of something around r: a body that was cut
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Release gives everything back. Idempotent.
func (s *Share) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.budget; b != nil {
		b.mu.Lock()
		b.used -= s.held
		b.mu.Unlock()
	}
	s.held, s.buffer = 0, 0
}
