package runner

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// ListFiles is executor.SessionFiles.ListFiles of the open session. TMPDIR is not listed. A link is listed as what it leads to.
// A link that leads nowhere or out is listed as itself. No link is followed.
func (c *Conn) ListFiles(ctx context.Context, path string, recursive bool) ([]executor.File, error) {
	k, done, err := c.call(ctx, protocol.SessionCall{Op: protocol.CallList, Path: path, Recursive: recursive})
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
		if files = append(files, r.Files...); len(files) > protocol.MaxListed {
			return nil, executor.Errorf(executor.Unavailable, "runner: more than %d files are listed", protocol.MaxListed)
		}
		if !r.More {
			return files, nil
		}
	}
}

// ReadFile is executor.SessionFiles.ReadFile. The end of ctx also ends the reading.
func (c *Conn) ReadFile(ctx context.Context, path string) (executor.File, io.ReadCloser, error) {
	k, done, err := c.call(ctx, protocol.SessionCall{Op: protocol.CallRead, Path: path})
	if err != nil {
		return executor.File{}, nil, err
	}
	file, err := k.file()
	if err != nil {
		done()
		return executor.File{}, nil, err
	}
	return file, &fileReader{call: k, done: done}, nil
}

// file waits for the reply that describes a file.
func (k *openCall) file() (executor.File, error) {
	r, err := k.reply()
	if err != nil {
		return executor.File{}, err
	}
	if r.File == nil {
		return executor.File{}, executor.Errorf(executor.Unavailable, "runner: %w: a file without a description", protocol.ErrFrame)
	}
	return *r.File, nil
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
	if f.used += len(data); f.used >= protocol.FileWindow/4 {
		_ = f.call.conn.out.Send(protocol.FrameSessionCredit, protocol.CallCredit(f.call.n, f.used)...) // a broken connection shows in the reader
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

// WriteFile is executor.SessionFiles.WriteFile. After an error r may have more to read.
func (c *Conn) WriteFile(ctx context.Context, file executor.File, r io.Reader) (executor.File, error) {
	k, done, err := c.call(ctx, protocol.SessionCall{
		Op: protocol.CallWrite, Path: file.Path, Size: file.SizeBytes, Mode: file.Mode, Folder: file.Directory,
	})
	if err != nil {
		return executor.File{}, err
	}
	defer done()
	if file.Directory {
		r = strings.NewReader("")
	}
	if err := k.send(r); err != nil {
		// When WriteFile returns, nothing of the file must be left.
		if c.out.SendJSON(protocol.FrameSession, protocol.SessionCall{N: k.n, Op: protocol.CallStop}) == nil {
			_, _ = k.reply() // it only says that it stopped
		}
		return executor.File{}, err
	}
	return k.file()
}

// send copies r to the runner. It returns errors of r only; the runner's are in the reply.
func (k *openCall) send(r io.Reader) error {
	whole, err := copyChunks(r, k.room, protocol.CallPayload(k.n), func(buf []byte) bool {
		return k.conn.out.SendBuffer(protocol.FrameSessionData, buf) == nil // a broken connection shows in the reader
	})
	if err != nil {
		return fmt.Errorf("read the file to write: %w", err)
	}
	if whole {
		_ = k.conn.out.Send(protocol.FrameSessionEnd, protocol.CallPayload(k.n, 1)...) // likewise
	}
	return nil
}

// RemoveFile is executor.SessionFiles.RemoveFile.
func (c *Conn) RemoveFile(ctx context.Context, path string) error {
	_, err := c.ask(ctx, protocol.SessionCall{Op: protocol.CallRemove, Path: path})
	return err
}
