package httpfrontend

import (
	"io"
	"strings"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
)

// tarPart is the tar of a request while it arrives. Read returns EOF only after the parts behind the tar were read and checked.
// The stdin part is therefore there when the workspace is unpacked. The whole body has been read then, so that net/http notices
// a disconnect while the program runs, even if the program never reads its input.
type tarPart struct {
	upload *upload
	head   []byte
	part   *bulkPart
	// touched reports whether the tar was opened.
	touched atomic.Bool
	opened  bool
	ended   bool
}

// closeDrain is how many bytes Close reads behind the end of the archive, which comes before the end of its file.
const closeDrain = 1 << 20

// openTar is the Workspace's Open.
func (u *upload) openTar() (io.ReadCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tar.opened {
		return nil, executor.Errorf(executor.Internal, "the uploaded tar was opened twice")
	}
	u.tar.opened = true
	u.tar.touched.Store(true)
	return u.tar, nil
}

// Read implements io.Reader.
func (t *tarPart) Read(p []byte) (int, error) {
	t.upload.mu.Lock()
	defer t.upload.mu.Unlock()
	return t.read(p)
}

func (t *tarPart) read(p []byte) (int, error) {
	switch {
	case t.upload.err != nil:
		return 0, t.upload.err
	case len(t.head) > 0:
		n := copy(p, t.head)
		t.head = t.head[n:]
		return n, nil
	case t.ended:
		return 0, io.EOF
	}
	n, err := t.part.Read(p)
	switch {
	case err == nil:
		return n, nil
	case ended(err):
		t.ended = true
		if err := t.upload.finish(); err != nil {
			t.upload.err = err
			return n, err
		}
		return n, io.EOF
	}
	t.upload.err = bodyError("the tar part", err)
	return n, t.upload.err
}

// Close implements io.Closer.
func (t *tarPart) Close() error {
	t.upload.mu.Lock()
	defer t.upload.mu.Unlock()
	if t.upload.err == nil && !t.ended {
		_, _ = io.CopyN(io.Discard, readerFunc(t.read), closeDrain) // read keeps its error in upload.err
	}
	t.head = nil
	return nil
}

// finish reads the parts behind the tar part.
func (u *upload) finish() error {
	for {
		part, name, err := u.next()
		if err != nil {
			return err
		}
		if part == nil {
			return nil
		}
		if name == "stdin" {
			if err := u.readStdinBehind(part); err != nil {
				return err
			}
		}
	}
}

// readStdinBehind spools a stdin part that comes behind the tar. openStdin returns it.
func (u *upload) readStdinBehind(part *bulkPart) error {
	u.stdin = newSpool(u.frontend.opts.SpoolDir, stdinMemory)
	return copyPart(u.stdin, part, "the stdin part")
}

// openStdin is the Stdin's Open if a stdin part may follow the tar. By the contract, it is called after the Workspace's end.
// openStdin drops the rest of a Workspace that was not read.
func (u *upload) openStdin() (io.ReadCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, err := io.Copy(io.Discard, readerFunc(u.tar.read)); err != nil {
		return nil, err
	}
	if u.stdin == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return io.NopCloser(u.stdin.reader()), nil
}

// readerFunc implements io.Reader with a function.
type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
