package runner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// ListFiles is executor.SessionFiles.ListFiles of the session that is open. TMPDIR is not listed. A link
// is listed as what it leads to, one that leads nowhere or out as itself; none is followed.
func (c *Conn) ListFiles(ctx context.Context, path string, recursive bool) ([]executor.File, error) {
	k, done, err := c.call(ctx, sessionCall{Op: callList, Path: path, Recursive: recursive})
	if err != nil {
		return nil, err
	}
	defer done()
	files := []executor.File{}
	for {
		r, err := k.reply()
		if err != nil {
			return nil, err
		}
		if files = append(files, r.Files...); len(files) > maxListed {
			return nil, executor.Errorf(executor.Unavailable, "runner: a list of more than %d files", maxListed)
		}
		if !r.More {
			return files, nil
		}
	}
}

// ReadFile is executor.SessionFiles.ReadFile. The end of ctx ends the reading, too.
func (c *Conn) ReadFile(ctx context.Context, path string) (executor.File, io.ReadCloser, error) {
	k, done, err := c.call(ctx, sessionCall{Op: callRead, Path: path})
	if err != nil {
		return executor.File{}, nil, err
	}
	r, err := k.reply()
	if err == nil && r.File == nil {
		err = executor.Errorf(executor.Unavailable, "runner: %w: a file without a description", errFrame)
	}
	if err != nil {
		done()
		return executor.File{}, nil, err
	}
	return *r.File, &fileReader{call: k, done: done}, nil
}

// fileReader reads a file as it comes.
type fileReader struct {
	call *openCall
	done func()
	data []byte
	used int
	err  error
}

// Read implements io.Reader.
func (f *fileReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.data) == 0 && f.err == nil {
		f.fill()
	}
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

func (f *fileReader) fill() {
	data, err := f.call.next()
	if err == nil && data == nil {
		if _, err = f.call.reply(); err == nil {
			err = io.EOF
		}
	}
	if f.data, f.err = data, err; err != nil {
		return
	}
	if f.used += len(data); f.used >= fileWindow/4 {
		_ = f.call.conn.out.frame(frameSessionCredit, callCredit(f.call.n, f.used)...) // a broken connection shows in the reader
		f.used = 0
	}
}

// Close implements io.Closer. Idempotent.
func (f *fileReader) Close() error {
	if f.done != nil {
		f.call.fail(io.ErrClosedPipe)
		f.done()
		f.done = nil
	}
	return nil
}

// WriteFile is executor.SessionFiles.WriteFile. Whatever r still holds after an error was not read.
func (c *Conn) WriteFile(ctx context.Context, path string, size int64, r io.Reader) (executor.File, error) {
	k, done, err := c.call(ctx, sessionCall{Op: callWrite, Path: path, Size: size})
	if err != nil {
		return executor.File{}, err
	}
	defer done()
	if err := k.send(r); err != nil {
		// Nothing of it is there any more when we return.
		if c.out.json(frameSession, sessionCall{N: k.n, Op: callStop}) == nil {
			_, _ = k.reply() // it only says that it stopped
		}
		return executor.File{}, err
	}
	reply, err := k.reply()
	if err == nil && reply.File == nil {
		err = executor.Errorf(executor.Unavailable, "runner: %w: a file without a description", errFrame)
	}
	if err != nil {
		return executor.File{}, err
	}
	return *reply.File, nil
}

// send copies r to the runner. An error is r's; the runner's shows in the reply.
func (k *openCall) send(r io.Reader) error {
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(buf)
	const at = frameHeader + callHeader
	binary.BigEndian.PutUint32((*buf)[frameHeader:], k.n)
	for {
		room, err := k.room.take(chunkBytes)
		if err != nil {
			return nil //nolint:nilerr // the call has ended; its reply says how
		}
		n, err := r.Read((*buf)[at : at+room])
		k.room.add(int64(room - n))
		if n > 0 && k.conn.out.framed(frameSessionData, (*buf)[:at+n]) != nil {
			return nil // a broken connection shows in the reader
		}
		if errors.Is(err, io.EOF) {
			_ = k.conn.out.frame(frameSessionEnd, callPayload(k.n, 1)...) // likewise
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what is to be written: %w", err)
		}
	}
}

// RemoveFile is executor.SessionFiles.RemoveFile.
func (c *Conn) RemoveFile(ctx context.Context, path string) error {
	_, err := c.ask(ctx, sessionCall{Op: callRemove, Path: path})
	return err
}
