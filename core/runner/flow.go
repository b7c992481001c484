package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// credit is the sending side of a channel: how many bytes may still be sent.
type credit struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int64
	err  error
}

func newCredit(n int64) *credit {
	c := &credit{n: n}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// take waits for credit and takes at most n of it.
func (c *credit) take(n int) (int, error) {
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

func (c *credit) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	c.cond.Broadcast()
}

// stop makes every take fail with err.
func (c *credit) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
}

// chunks holds buffers for frames: a chunk and the headers in front of it.
var chunks = sync.Pool{New: func() any {
	b := make([]byte, frameHeader+outputHeader+chunkBytes)
	return &b
}}

// inbox is the receiving side of a channel: a queue that credit bounds, read as an io.Reader.
type inbox struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  []piece
	held   int
	window int
	// used counts consumed bytes that were not granted again yet.
	used int
	// file has the bytes in place of queue, until its end; buffered reads it.
	file     *os.File
	buffered *bufio.Reader
	err      error
	discard  bool
	grant    func(n int)
}

type piece struct {
	buf  *[]byte // for the pool
	data []byte
}

// newInbox makes an inbox; grant tells the sender that n bytes were consumed.
func newInbox(window int, grant func(n int)) *inbox {
	b := &inbox{window: window, grant: grant}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// put queues a chunk. It never blocks: a sender that overruns its credit is an error.
func (b *inbox) put(p piece) error {
	b.mu.Lock()
	if b.err != nil && !b.discard {
		b.mu.Unlock()
		chunks.Put(p.buf)
		return nil // the end was already seen; the sender will learn of it
	}
	if b.discard {
		b.mu.Unlock()
		chunks.Put(p.buf)
		b.grant(len(p.data))
		return nil
	}
	defer b.mu.Unlock()
	if b.file != nil {
		return fmt.Errorf("%w: data beside a file", errFrame)
	}
	b.held += len(p.data)
	if b.held+b.used > b.window {
		return fmt.Errorf("%w: %d bytes without credit", errFrame, b.held+b.used-b.window)
	}
	b.queue = append(b.queue, p)
	b.cond.Signal()
	return nil
}

// open lets the reader see what is in file first. Small reads are collected, large ones go to the file as they are.
func (b *inbox) open(file *os.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.discard || b.err != nil {
		return file.Close()
	}
	if b.file != nil || b.held > 0 {
		return errors.Join(fmt.Errorf("%w: a file beside data", errFrame), file.Close())
	}
	b.file, b.buffered = file, bufio.NewReaderSize(file, 64<<10)
	b.cond.Signal()
	return nil
}

// closeFile ends a Read of the file, and tells who writes to it that nobody reads. The caller holds the lock.
func (b *inbox) closeFile() {
	if b.file != nil {
		_ = b.file.Close() // it was read
		b.file, b.buffered = nil, nil
	}
}

// end lets the reader see err (io.EOF at a regular end) after what is queued.
func (b *inbox) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.cond.Broadcast()
}

// abort drops what is queued and lets the reader see err at once.
func (b *inbox) abort(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	b.err = err
	b.cond.Broadcast()
}

// swallow drops what is queued and everything to come, granting credit for it, so that the sender never blocks.
func (b *inbox) swallow() {
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

func (b *inbox) drop() {
	for _, p := range b.queue {
		chunks.Put(p.buf)
	}
	b.queue = nil
	b.held = 0
	b.closeFile()
}

// Read implements io.Reader.
func (b *inbox) Read(p []byte) (int, error) {
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
		// The end that counts is the one that is told: who wrote to the file knows whether that was all.
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
	n := copy(p, first.data)
	first.data = first.data[n:]
	if len(first.data) == 0 {
		chunks.Put(first.buf)
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

var _ io.Reader = (*inbox)(nil)
