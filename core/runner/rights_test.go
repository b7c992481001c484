//go:build linux

package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// descriptor is a Workspace whose bytes lie in a descriptor; its end comes as told.
type descriptor struct {
	mu   sync.Mutex // a Close may come beside TakeFile
	file *os.File
	end  chan error
}

func (d *descriptor) TakeFile() *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.file
	d.file = nil
	return f
}

func (d *descriptor) Read([]byte) (int, error) {
	err, ok := <-d.end
	if !ok {
		err = io.ErrClosedPipe
	}
	return 0, err
}

// Close gives up a descriptor that nobody took: a call that was cancelled before it began takes none.
func (d *descriptor) Close() error {
	if f := d.TakeFile(); f != nil {
		return f.Close()
	}
	return nil
}

// inSocket is a Workspace that is written by write into a socket, and ends with what write returns.
func inSocket(t *testing.T, write func(w net.Conn) error) *descriptor {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(fds[0]), "writer") //nolint:gosec // a descriptor
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		t.Fatal(err)
	}
	d := &descriptor{file: os.NewFile(uintptr(fds[1]), "workspace"), end: make(chan error, 1)} //nolint:gosec // a descriptor
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(d.end)
		err := write(conn)
		_ = conn.Close()
		if err == nil {
			err = io.EOF
		}
		d.end <- err
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return d
}

func TestAWorkspaceInADescriptorIsUnpacked(t *testing.T) {
	r := startRunner(t, testConfig(t))
	data := strings.Repeat("0123456789abcde\n", 200_000)
	a := tarball{file("a.txt", "first"), file("dir/big.bin", data), file("last.txt", "last")}.bytes(t)
	start := shell("cat a.txt; wc -c < dir/big.bin; tail -n1 dir/big.bin; cat last.txt")
	want := "first3200000\n0123456789abcde\nlast"
	saved := filepath.Join(t.TempDir(), "tar")
	if err := os.WriteFile(saved, a, 0o600); err != nil {
		t.Fatal(err)
	}
	regular, err := os.Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	whole := make(chan error, 1)
	whole <- io.EOF
	for name, in := range map[string]io.Reader{
		"a socket": inSocket(t, func(w net.Conn) error { _, err := w.Write(a); return err }),
		"a file":   &descriptor{file: regular, end: whole},
	} {
		t.Run(name, func(t *testing.T) {
			if _, rec := r.run(t, start, RunInput{Workspace: in}); rec.stdout() != want {
				t.Errorf("got %q", rec.stdout())
			}
		})
	}
}

func TestABadArchiveInADescriptorStopsItsWriter(t *testing.T) {
	r := startRunner(t, testConfig(t))
	written := make(chan error, 1)
	in := inSocket(t, func(w net.Conn) error {
		_, err := io.Copy(w, endless{})
		written <- err
		return nil // a reader that wants no more is no failure of the source
	})
	res, _ := r.run(t, shell("echo never"), RunInput{Workspace: in})
	if res.Failure == nil || res.Failure.Code != executor.Invalid || res.Failure.Phase != executor.PhasePrepare {
		t.Error(describe(res))
	}
	if err := <-written; err == nil {
		t.Error("an endless stream was read to its end")
	}
	if res, _ := r.run(t, shell("exit 0"), RunInput{}); res.Status != executor.StatusSucceeded {
		t.Errorf("the next one: %s", describe(res))
	}
}

// endless is no archive: zeros would be an archive's end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestADescriptorThatIsCutOffIsItsSourcesFault(t *testing.T) {
	r := startRunner(t, testConfig(t))
	a := tarball{file("big.bin", strings.Repeat("x", 1<<20))}.bytes(t)
	broken := errors.New("the upload broke off")
	in := inSocket(t, func(w net.Conn) error { _, err := w.Write(a[:len(a)/2]); return errors.Join(err, broken) })
	if _, err := r.Run(t.Context(), shell("echo never"), RunInput{Workspace: in}, newRecord()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestACancelEndsAReadOfADescriptor(t *testing.T) {
	r := startRunner(t, testConfig(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan struct{})
	in := inSocket(t, func(w net.Conn) error {
		_, _ = w.Write(tarball{file("a", "x")}.bytes(t)[:700])
		cancel(nil)
		_, _ = w.Read(make([]byte, 1)) // until the runner has closed its end
		close(gone)
		return nil
	})
	res, err := r.Run(ctx, shell("echo never"), RunInput{Workspace: in}, newRecord())
	if err != nil || res.Status != executor.StatusKilled {
		t.Error(err, describe(res))
	}
	<-gone
}
