package session

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// earlierBytes bounds what is kept of each stream between two Executions. The newest is kept; the rest counts as truncated.
const earlierBytes = 512 << 10

// OutputStream reads an output stream of an interpreter as long as that lives. It gives what comes to the Execution that runs,
// and keeps it between two.
type OutputStream struct {
	stream executor.Stream
	pipe   *os.File

	mu     sync.Mutex
	buf    []byte
	box    *output.Outbox // of the Execution that runs; nil between two
	count  output.Tally
	kept   []byte
	lost   int64 // bytes that kept has no room for
	closed bool
}

func newOutputStream(s executor.Stream, pipe *os.File) *OutputStream {
	return &OutputStream{stream: s, pipe: pipe, buf: make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes+output.PumpBytes)}
}

// run reads until the pipe has ended or is closed.
func (t *OutputStream) run() {
	raw, err := t.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		ended := false
		err := raw.Read(func(fd uintptr) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			n, err := t.read(int(fd), output.PumpBytes)
			ended = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
			return ended || !errors.Is(err, unix.EAGAIN)
		})
		if err != nil || ended {
			return
		}
	}
}

// read does one read of at most limit bytes.
func (t *OutputStream) read(fd, limit int) (int, error) {
	const at = protocol.HeaderBytes + protocol.OutputHeaderBytes
	n, err := unix.Read(fd, t.buf[at:at+min(limit, output.PumpBytes)])
	if n > 0 {
		t.give(n)
	}
	return max(n, 0), err
}

// give passes on n bytes of buf.
func (t *OutputStream) give(n int) {
	const at = protocol.HeaderBytes + protocol.OutputHeaderBytes
	if t.box == nil {
		t.keep(t.buf[at : at+n])
		return
	}
	t.count.Put(t.box, t.stream, t.buf, n)
}

func (t *OutputStream) keep(p []byte) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - earlierBytes; over > 0 {
		t.lost += int64(over)
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
}

// Drain reads what is in the pipe now. It does not wait, because a process may keep the pipe open and write for ever.
func (t *OutputStream) Drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
}

func (t *OutputStream) drainLocked() {
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

// Earlier returns how much was kept since the last Execution. Attach sends it first.
func (t *OutputStream) Earlier() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	return int64(len(t.kept))
}

// Attach sends what was kept, and then what comes, to box, within limit.
func (t *OutputStream) Attach(box *output.Outbox, limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.box = box
	t.count = output.Tally{Total: t.lost, Truncated: t.lost > 0, Limit: limit}
	if limit != executor.Unlimited {
		t.count.Limit += t.lost // what went before has taken no room
	}
	kept := t.kept
	t.kept, t.lost = nil, 0
	for len(kept) > 0 {
		n := copy(t.buf[protocol.HeaderBytes+protocol.OutputHeaderBytes:], kept)
		kept = kept[n:]
		t.give(n)
	}
}

// Detach ends Attach, after it has read all that is in the pipe.
func (t *OutputStream) Detach() output.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	t.box = nil
	return t.count
}

// forget drops what was kept.
func (t *OutputStream) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drainLocked()
	t.kept, t.lost = nil, 0
}

// tail returns the end of what was kept, for messages.
func (t *OutputStream) tail(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.kept
	if len(p) > n {
		p = p[len(p)-n:]
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(p)), "\uFFFD")
}

// close ends run.
func (t *OutputStream) close() {
	_ = t.pipe.Close() // read only; ends a read that waits
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
