//go:build linux

package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// insider is a connection whose host looks into the runner's process, as a backend does that is root beside a daemon.
type insider struct {
	*client
	opened atomic.Int32
	err    error // in place of the pipe
}

// OpenDescriptor implements DescriptorOpener.
func (i *insider) OpenDescriptor(fd int) (*os.File, error) {
	if i.err != nil {
		return nil, i.err
	}
	i.opened.Add(1)
	return os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", i.board.cmd.Process.Pid, fd), os.O_WRONLY|unix.O_NONBLOCK, 0)
}

// startWithPipe starts a runner in something like a container, whose pipe can be opened unless err says that it cannot.
func startWithPipe(t *testing.T, err error) (*testRunner, *insider) {
	t.Helper()
	i := &insider{err: err}
	return startInsideWith(t, nil, func(c *client) io.ReadWriteCloser { i.client = c; return i }), i
}

func TestAWorkspaceGoesThroughThePipe(t *testing.T) {
	a := tarball{file("a.txt", "first"), file("dir/big.bin", strings.Repeat("0123456789abcde\n", 200_000)), file("last.txt", "last")}.bytes(t)
	start := shell("cat a.txt; wc -c < dir/big.bin; cat last.txt; cat")
	const want = "first3200000\nlastinput"
	saved := filepath.Join(t.TempDir(), "tar")
	if err := os.WriteFile(saved, a, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		workspace func() io.Reader
		err       error
	}{
		"a socket": {workspace: func() io.Reader {
			return inSocket(t, func(w net.Conn) error { _, err := w.Write(a); return err })
		}},
		"a file": {workspace: func() io.Reader {
			f, err := os.Open(saved)
			if err != nil {
				t.Fatal(err)
			}
			whole := make(chan error, 1)
			whole <- io.EOF
			return &descriptor{file: f, end: whole}
		}},
		"a reader":                     {workspace: func() io.Reader { return bytes.NewReader(a) }},
		"a pipe that cannot be opened": {workspace: func() io.Reader { return bytes.NewReader(a) }, err: os.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			r, i := startWithPipe(t, c.err)
			for n, workspace := range []io.Reader{c.workspace(), bytes.NewReader(a)} { // the second comes in frames: a pipe is for one
				res, rec := r.run(t, start, RunInput{Workspace: workspace, Stdin: strings.NewReader("input")})
				if rec.stdout() != want {
					t.Errorf("run %d: %s, %q", n, describe(res), rec.stdout())
				}
			}
			if opened := i.opened.Load(); c.err == nil && opened != 1 || c.err != nil && opened != 0 {
				t.Errorf("the pipe was opened %d times", opened)
			}
		})
	}
}

func TestWhatComesThroughTheDoorStopsWhenNobodyWantsIt(t *testing.T) {
	refused := func(t *testing.T, r *testRunner, workspace io.Reader) {
		t.Helper()
		res, _ := r.run(t, shell("echo never"), RunInput{Workspace: workspace})
		if res.Failure == nil || res.Failure.Code != executor.Invalid || res.Failure.Phase != executor.PhasePrepare {
			t.Error(describe(res))
		}
		r.isAlive(t)
	}
	t.Run("a bad archive in a socket", func(t *testing.T) {
		r, _ := startWithPipe(t, nil)
		written := make(chan error, 1)
		refused(t, r, inSocket(t, func(w net.Conn) error {
			_, err := io.Copy(w, endless{})
			written <- err
			return nil // a reader that wants no more is no failure of the source
		}))
		if err := <-written; err == nil {
			t.Error("an endless stream was read to its end")
		}
	})
	t.Run("a bad archive in a reader", func(t *testing.T) {
		r, _ := startWithPipe(t, nil)
		refused(t, r, endless{})
	})
	t.Run("a cancel", func(t *testing.T) {
		r, _ := startWithPipe(t, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := make(chan struct{})
		in := inSocket(t, func(w net.Conn) error {
			_, _ = w.Write(tarball{file("a", "x")}.bytes(t)[:700])
			cancel(nil)
			_, _ = w.Read(make([]byte, 1)) // until the other end is closed
			close(gone)
			return nil
		})
		res, err := r.Run(ctx, shell("echo never"), RunInput{Workspace: in}, newRecord())
		if err != nil || res.Status != executor.StatusKilled {
			t.Error(err, describe(res))
		}
		<-gone
		r.isAlive(t)
	})
	t.Run("a source that fails", func(t *testing.T) {
		r, _ := startWithPipe(t, nil)
		broken := errors.New("the upload broke off")
		a := tarball{file("big.bin", strings.Repeat("x", 1<<20))}.bytes(t)
		in := inSocket(t, func(w net.Conn) error { _, err := w.Write(a[:len(a)/2]); return errors.Join(err, broken) })
		if _, err := r.Run(t.Context(), shell("echo never"), RunInput{Workspace: in}, newRecord()); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		r.isAlive(t)
	})
}

func TestAProgramFindsNoPipe(t *testing.T) {
	r, _ := startWithPipe(t, nil)
	res, rec := r.run(t, python(`
import os
print(sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2)[:-1])  # the last is listdir's own
try: print(os.listdir("/proc/1/fd"))
except PermissionError: print("refused")
`), RunInput{})
	if rec.stdout() != "[]\nrefused\n" {
		t.Errorf("%s %q", describe(res), rec.stdout())
	}
}
