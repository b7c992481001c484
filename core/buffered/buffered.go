package buffered

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// small is the part of each body that is not counted, so that short requests are served even when the Budget is used up.
const small = 16 << 10

// retryAfter is the time after which a refused sender may try again.
const retryAfter = time.Second

// Budget bounds the memory of all bodies together. It is safe for concurrent use. The nil Budget has no bound.
type Budget struct {
	size int64
	// perOwner bounds the bodies of one owner together, unless there is only one; 0 = no bound.
	perOwner int64

	mu   sync.Mutex
	used int64
	own  map[string]int64
}

// New returns a Budget of size bytes. If there are several owners, several bodies of one owner have at most half of it.
func New(size int64, severalOwners bool) *Budget {
	b := &Budget{size: size, own: map[string]int64{}}
	if severalOwners {
		b.perOwner = size / 2
	}
	return b
}

// Share is the part of a Budget that one request holds. ReadAll must be called by one goroutine at a time. Release is safe for
// concurrent use.
type Share struct {
	budget *Budget
	owner  string

	mu     sync.Mutex
	held   int64 // counted against the budget
	buffer int64 // size of the buffers of all bodies
}

// Open returns the empty share of a request of owner.
func (b *Budget) Open(owner string) *Share { return &Share{budget: b, owner: owner} }

// ErrFull reports whether err refuses a body because the budget is used up.
func ErrFull(err error) bool { return errors.Is(err, errFull) }

var errFull = errors.New("the budget of buffered bodies is used up")

func full() error {
	return &executor.Error{
		Code: executor.Unavailable, Message: "the server holds too many large requests (http.max_buffered_bytes): try again", RetryAfter: retryAfter, Err: errFull,
	}
}

// fits reports whether n more bytes would fit now.
func (s *Share) fits(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.budget
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked(s, n)
}

// roomLocked reports whether s may count n more bytes. The caller holds both locks.
func (b *Budget) roomLocked(s *Share, n int64) bool {
	own := b.own[s.owner]
	return b.used+n <= b.size && (b.perOwner == 0 || own == s.held || own+n <= b.perOwner)
}

// grow counts n more bytes of buffer.
func (s *Share) grow(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := max(0, s.buffer+n-small) - s.held
	if b := s.budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.roomLocked(s, more) {
			return full()
		}
		b.used += more
		b.own[s.owner] += more
	}
	s.buffer += n
	s.held += more
	return nil
}

// ReadAll reads r to its end into memory that counts against the budget until Release. announced is the length that the
// sender has announced, or -1. A body that does not fit now is refused without a read. Codes: unavailable; errors of r.
func (s *Share) ReadAll(r io.Reader, announced int64) ([]byte, error) {
	// As below, the buffer of the whole body has one byte more.
	if more := announced + 1 - small; more > 0 && !s.fits(more) {
		return nil, full()
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			size := max(512, 2*cap(body))
			if announced >= int64(cap(body)) {
				size = int(min(int64(size), announced+1)) // one byte more, so that the Read of the end needs no larger buffer
			}
			if err := s.grow(int64(size - cap(body))); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is an error of r: the body was cut
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Release returns the whole share to the budget. Idempotent.
func (s *Share) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.budget; b != nil {
		b.mu.Lock()
		b.used -= s.held
		if b.own[s.owner] -= s.held; b.own[s.owner] == 0 {
			delete(b.own, s.owner)
		}
		b.mu.Unlock()
	}
	s.held, s.buffer = 0, 0
}
