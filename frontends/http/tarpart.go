package httpfrontend

import (
	"io"
	"strings"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
)

// tarPart is the tar of a request while it arrives. Its end is the body's end: before Read says EOF, whatever follows the
// tar has been read and checked, so that the stdin part is at hand when the workspace is unpacked, and so that net/http
// watches the connection while the program runs, whether or not it ever reads its input.
type tarPart struct {
	upload *upload
	head   []byte
	part   *bulkPart
	// touched: somebody wanted it.
	touched atomic.Bool
	opened  bool
	ended   bool
}

// closeDrain is how much a reader that closes early may leave unread: an archive's end comes before its file's end.
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
		_, _ = io.CopyN(io.Discard, readerFunc(t.read), closeDrain) // a failure is kept in upload.err
	}
	t.head = nil
	return nil
}

// finish reads what follows the tar part.
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

// readStdinBehind spools a stdin part that came behind the tar. openStdin hands it out.
func (u *upload) readStdinBehind(part *bulkPart) error {
	u.stdin = newSpool(u.frontend.opts.SpoolDir, stdinMemory)
	return copyPart(u.stdin, part, "the stdin part")
}

// openStdin is the Stdin's Open where a stdin part may follow the tar: the contract has it opened behind the Workspace's
// end. A Workspace that nobody wanted is passed over.
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

// readerFunc is a function as an io.Reader.
type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
