package batch

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// copyBytes is how much of each stream is copied.
	copyBytes = 1 << 20
	// copyPatience is how long the runner waits at its end for a reader of the copies.
	copyPatience = 3 * time.Second
)

// copier is a Sink that also copies the first output to this process's own stdout and stderr. It never waits for their readers.
// It adds to Started what the agent does not know.
type copier struct {
	executor.Sink
	python       string
	requirements []string
	streams      map[executor.Stream]*copied
}

func newCopier(to executor.Sink) *copier {
	c := &copier{Sink: to, streams: map[executor.Stream]*copied{}}
	for s, fd := range map[executor.Stream]uintptr{executor.Stdout: 1, executor.Stderr: 2} {
		// A duplicate, because the runner keeps its own. A new File learns whether the descriptor blocks.
		if own, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			c.streams[s] = newCopied(os.NewFile(uintptr(own), string(s))) //nolint:gosec // a descriptor
		}
	}
	return c
}

// Emit implements executor.Sink.
func (c *copier) Emit(e executor.Event) error {
	switch b := e.Body.(type) {
	case executor.Started:
		b.PID = 0 // a number of this place, which means nothing elsewhere
		b.PythonVersion, b.Requirements = c.python, c.requirements
		e.Body = b
	case executor.Output:
		if s := c.streams[b.Stream]; s != nil {
			s.add(b.Data)
		}
	}
	return c.Sink.Emit(e)
}

// finish waits for the readers of the copies, but not long.
func (c *copier) finish() {
	late := time.After(copyPatience)
	for _, s := range c.streams {
		s.end()
		select {
		case <-s.done:
		case <-late:
			return
		}
	}
}

// copied is a stream that is copied. Its size bounds what it keeps for a slow reader.
type copied struct {
	done chan struct{} // closed when all is written, or cannot be

	mu     sync.Mutex
	cond   *sync.Cond
	left   int // how much is still to be taken
	queue  []byte
	closed bool
}

func newCopied(to *os.File) *copied {
	c := &copied{done: make(chan struct{}), left: copyBytes}
	c.cond = sync.NewCond(&c.mu)
	go c.write(to)
	return c
}

func (c *copied) add(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data = data[:min(len(data), c.left)]
	c.left -= len(data)
	c.queue = append(c.queue, data...)
	c.cond.Signal()
}

func (c *copied) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cond.Signal()
}

func (c *copied) write(to *os.File) {
	defer close(c.done)
	defer to.Close() //nolint:errcheck // the process ends
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.cond.Wait()
		}
		data := c.queue
		c.queue = nil
		c.mu.Unlock()
		if len(data) == 0 {
			return
		}
		if _, err := to.Write(data); err != nil {
			return // nobody reads; the records have it
		}
	}
}
