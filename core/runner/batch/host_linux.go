package batch

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// host is both ends of a runner in this process.
type host struct {
	conn   *runner.Conn
	served chan struct{} // closed when no process of a program is left
}

// open hides the folders protect from programs, except for keep, and starts a runner. If the runner breaks, w gets the error as
// its last record. Codes: invalid (cfg), internal, those of NewConn.
func open(cfg protocol.Config, protect []string, keep string, w *job.Writer) (*host, error) {
	switch {
	case os.Geteuid() != 0:
		return nil, executor.Errorf(executor.Internal, "the runner must be root (uid %d): a program of its user could write its files", os.Geteuid())
	case cfg.UID <= 0 || cfg.GID <= 0:
		return nil, executor.FieldErrorf(executor.Invalid, "uid", "must be a user and a group that are not root (got %d:%d)", cfg.UID, cfg.GID)
	}
	cfg.Silence, cfg.WorkspacePipe = 0, false
	if err := give(cfg); err != nil {
		return nil, executor.Errorf(executor.Internal, "folders of programs: %w", err)
	}
	for _, dir := range protect {
		if err := hide(dir, keep); err != nil {
			return nil, executor.Errorf(executor.Internal, "hide %s from programs: %w", dir, err)
		}
	}
	local, err := agent.Enter(func(err error) {
		_ = errors.Join(w.Fail(executor.Errorf(executor.Internal, "runner: %w", err)), w.Close()) // the process ends
	})
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "runner: %w", err)
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "socketpair: %w", err)
	}
	h := &host{served: make(chan struct{})}
	go func() {
		defer close(h.served)
		if err := errors.Join(local.Serve(theirs), theirs.Close()); err != nil {
			say(err)
		}
	}()
	if h.conn, err = runner.NewConn(ours, cfg); err != nil {
		return nil, err
	}
	return h, nil
}

// give makes the folders of programs theirs. A platform may have made them as root's.
func give(cfg protocol.Config) error {
	err := errors.Join(os.Chown(cfg.WorkRoot, cfg.UID, cfg.GID), os.Chmod(cfg.WorkRoot, 0o700)) //nolint:gosec // a folder
	if cfg.Temp != "" {
		err = errors.Join(err, os.Chmod(cfg.Temp, 0o777|fs.ModeSticky))
	}
	return err
}

// close ends the runner. It returns when nothing of any program is left.
func (h *host) close() {
	if err := h.conn.Close(); err != nil {
		say(err)
	}
	<-h.served
}

// socketpair returns the two ends of a connection. They close at exec.
func socketpair() (ours, theirs net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "runner") //nolint:gosec // a descriptor
		conn, connErr := net.FileConn(f)       // a duplicate
		err = errors.Join(err, connErr, f.Close())
		ends[i] = conn
	}
	return ends[0], ends[1], err
}

// inputFile opens a file of the input folder. It returns nil if there is none.
func inputFile(folder, name string) (io.Reader, error) {
	f, err := os.Open(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "input: %w", err)
	}
	return &stream{f}, nil
}

// stream is a file that the agent reads itself.
type stream struct{ file *os.File }

// TakeFile implements executor.FileStream.
func (s *stream) TakeFile() *os.File {
	f := s.file
	s.file = nil
	return f
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if s.file == nil {
		return 0, io.EOF // the agent has it
	}
	return s.file.Read(p)
}

// Close implements io.Closer.
func (s *stream) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// interpreter finds the Python on the PATH of start. It asks as the program's user, within the limits of start.
func (h *host) interpreter(ctx context.Context, start runner.Start) (runner.Interpreter, error) {
	start.Limits.Timeout = runner.InterpreterTimeout
	return h.conn.Interpreter(ctx, start)
}

// sink gives output to functions, each of which may be nil. It ignores other events and has no artifacts.
type sink struct{ stdout, stderr func([]byte) }

// Emit implements executor.Sink.
func (s sink) Emit(e executor.Event) error {
	o, ok := e.Body.(executor.Output)
	if !ok {
		return nil
	}
	take := s.stdout
	if o.Stream == executor.Stderr {
		take = s.stderr
	}
	if take != nil {
		take(o.Data)
	}
	return nil
}

// Artifact implements executor.Sink.
func (s sink) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
