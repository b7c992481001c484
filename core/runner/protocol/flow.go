package protocol

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Credit is the sending end of a channel: how many bytes it may still send.
type Credit struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int64
	err  error
}

// NewCredit returns a Credit of n bytes.
func NewCredit(n int64) *Credit {
	c := &Credit{n: n}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// Take waits for credit and takes at most n bytes of it.
func (c *Credit) Take(n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n <= 0 && c.err == nil {
		c.cond.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	taken := min(int64(n), c.n)
	c.n -= taken
	return int(taken), nil
}

// Add grants n bytes more.
func (c *Credit) Add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	c.cond.Broadcast()
}

// Stop makes every Take fail with err.
func (c *Credit) Stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
}

// ChunkPool has buffers for frames: a chunk and the headers in front of it.
var ChunkPool = sync.Pool{New: func() any {
	b := make([]byte, HeaderBytes+OutputHeaderBytes+ChunkBytes)
	return &b
}}

// Inbox is the receiving end of a channel. Credit bounds what it queues. It is read as an io.Reader.
type Inbox struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  []Piece
	held   int
	window int
	// used counts the bytes that were read and not granted again yet.
	used int
	// file has the bytes instead of queue, until its end. buffered reads it.
	file     *os.File
	buffered *bufio.Reader
	err      error
	discard  bool
	grant    func(n int)
}

// Piece is a chunk in a buffer of ChunkPool.
type Piece struct {
	Buffer *[]byte
	Data   []byte
}

// NewInbox returns an Inbox. It calls grant to tell the sender that n bytes were consumed.
func NewInbox(window int, grant func(n int)) *Inbox {
	b := &Inbox{window: window, grant: grant}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// Put queues a chunk and never blocks. It fails if the sender has overrun its credit.
func (b *Inbox) Put(p Piece) error {
	b.mu.Lock()
	if b.err != nil && !b.discard {
		b.mu.Unlock()
		ChunkPool.Put(p.Buffer)
		return nil // the stream has ended already; the sender will hear of it
	}
	if b.discard {
		b.mu.Unlock()
		ChunkPool.Put(p.Buffer)
		b.grant(len(p.Data))
		return nil
	}
	defer b.mu.Unlock()
	if b.file != nil {
		return fmt.Errorf("%w: data beside a file", ErrFrame)
	}
	b.held += len(p.Data)
	if b.held+b.used > b.window {
		return fmt.Errorf("%w: %d bytes without credit", ErrFrame, b.held+b.used-b.window)
	}
	b.queue = append(b.queue, p)
	b.cond.Signal()
	return nil
}

// Open lets Read read file first. Small reads are buffered.
func (b *Inbox) Open(file *os.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.discard || b.err != nil {
		return file.Close()
	}
	if b.file != nil || b.held > 0 {
		return errors.Join(fmt.Errorf("%w: a file beside data", ErrFrame), file.Close())
	}
	b.file, b.buffered = file, bufio.NewReaderSize(file, 64<<10)
	b.cond.Signal()
	return nil
}

// closeFile ends a Read of the file, and makes writes at the pipe's other end fail. The caller holds the lock.
func (b *Inbox) closeFile() {
	if b.file != nil {
		_ = b.file.Close() // it was read
		b.file, b.buffered = nil, nil
	}
}

// End makes Read return err behind what is queued; io.EOF is a regular end.
func (b *Inbox) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.cond.Broadcast()
}

// Abort drops what is queued and makes Read return err at once.
func (b *Inbox) Abort(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	b.err = err
	b.cond.Broadcast()
}

// Swallow drops what is queued and all that comes. It grants credit for it, so that the sender never blocks.
func (b *Inbox) Swallow() {
	b.mu.Lock()
	n := b.held + b.used
	b.used = 0
	b.drop()
	b.discard = true
	b.mu.Unlock()
	if n > 0 {
		b.grant(n)
	}
}

func (b *Inbox) drop() {
	for _, p := range b.queue {
		ChunkPool.Put(p.Buffer)
	}
	b.queue = nil
	b.held = 0
	b.closeFile()
}

// Read implements io.Reader.
func (b *Inbox) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	for b.file != nil || len(b.queue) == 0 && b.err == nil {
		if b.file == nil {
			b.cond.Wait()
			continue
		}
		r := b.buffered
		b.mu.Unlock()
		n, err := r.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		b.mu.Lock()
		// The end of the file is not the end of the stream. The sender tells by a frame whether that was all.
		if b.file != nil && !errors.Is(err, io.EOF) {
			b.err = err
		}
		b.closeFile()
	}
	if len(b.queue) == 0 {
		defer b.mu.Unlock()
		return 0, b.err
	}
	first := &b.queue[0]
	n := copy(p, first.Data)
	first.Data = first.Data[n:]
	if len(first.Data) == 0 {
		ChunkPool.Put(first.Buffer)
		b.queue = b.queue[1:]
	}
	b.held -= n
	b.used += n
	give := 0
	if b.used >= b.window/4 {
		give, b.used = b.used, 0
	}
	b.mu.Unlock()
	if give > 0 {
		b.grant(give)
	}
	return n, nil
}

var _ io.Reader = (*Inbox)(nil)

// The reasons why a channel ends early.
var (
	ErrCancelled = errors.New("cancelled")
	ErrStopped   = errors.New("the Execution has ended")
)
