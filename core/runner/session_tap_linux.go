package runner

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// earlierBytes bounds what is kept of each stream between two Executions. Of more, the newest is kept; what went is
// counted as output that was truncated.
const earlierBytes = 512 << 10

// tap reads one output stream of an interpreter for as long as that lives, and gives what comes to the Execution that
// runs; between two it keeps it.
type tap struct {
	stream executor.Stream
	pipe   *os.File

	mu     sync.Mutex
	buf    []byte
	box    *outbox // of the Execution that runs; nil between two
	limit  int64
	count  tally
	kept   []byte
	lost   int64 // bytes that kept has no room for
	closed bool
}

// tally is what an Execution has put out.
type tally struct {
	total     int64
	truncated bool
	unheard   bool
}

func newTap(s executor.Stream, pipe *os.File) *tap {
	return &tap{stream: s, pipe: pipe, buf: make([]byte, frameHeader+outputHeader+pumpBytes)}
}

// run reads until the pipe ends or is closed.
func (t *tap) run() {
	raw, err := t.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		ended := false
		err := raw.Read(func(fd uintptr) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			n, err := t.read(int(fd), pumpBytes)
			ended = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
			return ended || !errors.Is(err, unix.EAGAIN)
		})
		if err != nil || ended {
			return
		}
	}
}

// read takes what one read gives, at most most bytes.
func (t *tap) read(fd, most int) (int, error) {
	const at = frameHeader + outputHeader
	n, err := unix.Read(fd, t.buf[at:at+min(most, pumpBytes)])
	if n > 0 {
		t.give(n)
	}
	return max(n, 0), err
}

// give passes on the n bytes in buf.
func (t *tap) give(n int) {
	const at = frameHeader + outputHeader
	if t.box == nil {
		t.keep(t.buf[at : at+n])
		return
	}
	keep := int64(n)
	if t.limit != executor.Unlimited {
		keep = max(min(keep, t.limit-t.count.total), 0)
	}
	t.count.total += int64(n)
	t.count.truncated = t.count.truncated || keep < int64(n)
	if keep > 0 && !t.count.unheard {
		t.count.unheard = !t.box.put(t.stream, t.buf[:at+int(keep)])
	}
}

func (t *tap) keep(p []byte) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - earlierBytes; over > 0 {
		t.lost += int64(over)
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
}

// drain takes what is in the pipe now, and waits for no more: somebody may hold it open, and write, for ever.
func (t *tap) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
}

func (t *tap) drainLocked() {
	raw, err := t.pipe.SyscallConn()
	if err != nil || t.closed {
		return
	}
	_ = raw.Control(func(fd uintptr) { // closed is as good as empty
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			var n int
			if n, err = t.read(int(fd), left); n == 0 {
				return
			}
			left -= n
		}
	})
}

// earlier returns how much was kept since the last Execution: attach will send it first.
func (t *tap) earlier() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	return int64(len(t.kept))
}

// attach sends what earlier has told of, and then what comes, to box. Of all that limit is kept.
func (t *tap) attach(box *outbox, limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.box, t.limit = box, limit
	t.count = tally{total: t.lost, truncated: t.lost > 0}
	if limit != executor.Unlimited {
		t.limit += t.lost // what went before has taken no room
	}
	kept := t.kept
	t.kept, t.lost = nil, 0
	for len(kept) > 0 {
		n := copy(t.buf[frameHeader+outputHeader:], kept)
		kept = kept[n:]
		t.give(n)
	}
}

// detach ends what attach began, with all that is in the pipe.
func (t *tap) detach() tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	t.box = nil
	return t.count
}

// forget drops what was kept.
func (t *tap) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	t.kept, t.lost = nil, 0
}

// tail is the end of what was kept, for messages.
func (t *tap) tail(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.kept
	if len(p) > n {
		p = p[len(p)-n:]
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(p)), "\uFFFD")
}

// close ends run.
func (t *tap) close() {
	_ = t.pipe.Close() // read only; ends a read that waits
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
