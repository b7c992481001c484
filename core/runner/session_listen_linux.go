package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/python-executor/python-executor/core/runner/drivers"
)

// number is the next operation's.
func (i *interpreter) number() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last++
	return i.last
}

// smallWrite is what a socket takes at once from somebody who has written nothing else.
const smallWrite = 32 << 10

// write sends an operation. A driver that does not read blocks nobody: its cell's clock ends it.
func (i *interpreter) write(p []byte) {
	if len(p) <= smallWrite {
		_ = i.control.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := i.control.Write(p)
		_ = i.control.SetWriteDeadline(time.Time{})
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return // a broken channel shows in listen
		}
		p = p[n:]
	}
	i.session.agent.goGuarded(func() { _, _ = i.control.Write(p) })
}

// maxLine bounds what a driver says at once: a Display with its base64 and its names.
const maxLine = maxControl

// listen reads what the driver says, to the end of the channel.
func (i *interpreter) listen() {
	r := bufio.NewReaderSize(i.control, 64<<10)
	var err error
	for err == nil {
		err = i.line(r)
	}
	i.why = fmt.Errorf("its control channel broke: %w", err)
	close(i.broken)
}

func (i *interpreter) line(r *bufio.Reader) error {
	var whole []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && whole == nil {
			return i.answer(part)
		}
		if whole = append(whole, part...); len(whole) > maxLine {
			return fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if err == nil {
			return i.answer(whole)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
	}
}

func (i *interpreter) answer(line []byte) error {
	var a drivers.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("%q is no answer", shortened(line))
	}
	a.Display, a.Variables = bytes.Clone(a.Display), bytes.Clone(a.Variables)
	i.mu.Lock()
	hears, leaves := i.hears, i.leaves
	if hears == nil && a.Op == "display" {
		i.dropped++
	}
	i.mu.Unlock()
	if hears == nil {
		return nil // between two operations nobody asked
	}
	select {
	case hears <- a:
	case <-leaves:
	}
	return nil
}

func shortened(p []byte) []byte {
	return p[:min(len(p), 60)]
}

// hear returns what the driver says from now on; leave must be called.
func (i *interpreter) hear() (<-chan drivers.Answer, func()) {
	answers, leaves := make(chan drivers.Answer), make(chan struct{})
	i.mu.Lock()
	i.hears, i.leaves = answers, leaves
	i.mu.Unlock()
	return answers, func() {
		i.mu.Lock()
		i.hears, i.leaves = nil, nil
		i.mu.Unlock()
		close(leaves)
	}
}
