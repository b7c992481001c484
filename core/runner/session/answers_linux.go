package session

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
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Number returns the number of the next operation.
func (i *Interpreter) Number() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last++
	return i.last
}

// smallWrite is how much an empty socket takes at once.
const smallWrite = 32 << 10

// Write sends an operation. It does not wait for a driver that does not read: the cell's time limit ends that.
func (i *Interpreter) Write(p []byte) {
	if len(p) <= smallWrite {
		_ = i.control.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := i.control.Write(p)
		_ = i.control.SetWriteDeadline(time.Time{})
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			i.wrote(err)
			return
		}
		p = p[n:]
	}
	i.session.sandbox.Go(func() {
		_, err := i.control.Write(p)
		i.wrote(err)
	})
}

// wrote breaks the channel after an error of a write, which listen shows. The driver would wait for that operation, and we for its answer.
func (i *Interpreter) wrote(err error) {
	if err != nil {
		_ = i.control.Close() // it may be closed
	}
}

// maxLine bounds one answer of the driver: a Display with its base64 and its names.
const maxLine = protocol.MaxControl

// listen reads the driver's answers until the channel ends.
func (i *Interpreter) listen() {
	r := bufio.NewReaderSize(i.control, 64<<10)
	var err error
	for err == nil {
		err = i.line(r)
	}
	i.Why = fmt.Errorf("the control channel of the interpreter broke: %w", err)
	close(i.Broken)
}

func (i *Interpreter) line(r *bufio.Reader) error {
	var whole []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && whole == nil {
			return i.answer(part)
		}
		if whole = append(whole, part...); len(whole) > maxLine {
			return fmt.Errorf("the answer of the interpreter has more than %d bytes", maxLine)
		}
		if err == nil {
			return i.answer(whole)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
	}
}

func (i *Interpreter) answer(line []byte) error {
	var a drivers.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("the answer of the interpreter cannot be understood: %q", shortened(line))
	}
	a.Display, a.Variables = bytes.Clone(a.Display), bytes.Clone(a.Variables)
	i.mu.Lock()
	hears, leaves := i.hears, i.leaves
	if hears == nil && a.Op == "display" {
		i.dropped++
	}
	i.mu.Unlock()
	if hears == nil {
		return nil // between two operations there is no request
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

// Hear returns the driver's answers from now on. The caller must call leave.
func (i *Interpreter) Hear() (<-chan drivers.Answer, func()) {
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
