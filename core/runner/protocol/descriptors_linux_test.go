package protocol

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A host that is gone before it has read everything resets the connection. That is an error of the read, and no count of bytes.
func TestAReadOfAResetConnectionReturnsNoBytes(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	conn := connOf(t, fds[0])
	if _, err := conn.Write([]byte("not read")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	r := &MarkerReader{Src: &DescriptorReader{Conn: conn}, Marker: Marker(1)}
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// connOf returns a connection of an end of a socketpair. The connection is closed in the end.
func connOf(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "runner")
	conn, err := net.FileConn(f)
	must(t, errors.Join(err, f.Close()))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn) //nolint:forcetypeassert // a socketpair
}

func TestAReaderKeepsFewDescriptors(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	r, w := &DescriptorReader{Conn: connOf(t, fds[0])}, NewWriter(connOf(t, fds[1]))
	defer func() {
		for f := r.Take(); f != nil; f = r.Take() {
			_ = f.Close()
		}
	}()
	frames, f := NewReader(r), fileOf(t, "data")
	defer f.Close()
	for range maxFiles {
		must(t, w.SendFile(FrameFile, f))
		_, _, err := frames.Header()
		must(t, err)
	}
	must(t, w.SendFile(FrameFile, f))
	if _, _, err := frames.Header(); !errors.Is(err, ErrFrame) {
		t.Errorf("more than %d descriptors are kept: %v", maxFiles, err)
	}
}

func TestAWriterThatWasStoppedSendsNoFile(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	r, conn, f := &DescriptorReader{Conn: connOf(t, fds[0])}, connOf(t, fds[1]), fileOf(t, "data")
	defer f.Close()
	w := NewWriter(conn)
	w.Stop(ErrStopped)
	if err := w.SendFile(FrameFile, f); !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotPassed) {
		t.Error(err)
	}
	must(t, conn.Close())
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) || r.Take() != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// A descriptor that cannot be passed is no error of the connection.
func TestAWriterThatCannotPassADescriptorWorksOn(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	r, w := &DescriptorReader{Conn: connOf(t, fds[0])}, NewWriter(connOf(t, fds[1]))
	w.OnError = func(err error) { t.Errorf("the Writer is broken: %v", err) }
	f := fileOf(t, "data")
	must(t, f.Close())
	if err := w.SendFile(FrameFile, f); !errors.Is(err, ErrNotPassed) {
		t.Errorf("a closed file: %v", err)
	}
	must(t, w.Send(FramePing))
	if kind, _, err := NewReader(r).Header(); kind != FramePing || err != nil || r.Take() != nil {
		t.Errorf("frame %d, %v", kind, err)
	}
}

// A reader without a descriptor that was sent must not wait for it.
func TestADescriptorThatTheKernelDropsIsAnError(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)) // beside the sender there is room for four
	r, conn, f := &DescriptorReader{Conn: connOf(t, fds[0])}, connOf(t, fds[1]), fileOf(t, "data")
	defer f.Close()
	defer func() {
		for f := r.Take(); f != nil; f = r.Take() {
			_ = f.Close()
		}
	}()
	many := make([]int, maxFiles+1)
	for i := range many {
		many[i] = int(f.Fd())
	}
	_, _, err = conn.WriteMsgUnix([]byte{0, 0, 0, 0, byte(FrameFile)}, unix.UnixRights(many...), nil)
	must(t, err)
	if _, err := r.Read(make([]byte, HeaderBytes)); err == nil || !strings.Contains(err.Error(), "dropped a descriptor") {
		t.Errorf("the loss of a descriptor: %v", err)
	}
}

// A Writer tells its first error to the owner of the connection.
func TestAWriterTellsItsFirstError(t *testing.T) {
	t.Parallel()
	var told []error
	w := NewWriter(refuser{})
	w.OnError = func(err error) { told = append(told, err) }
	for range 2 {
		if err := w.Send(FramePing); !errors.Is(err, syscall.ENOBUFS) {
			t.Error(err)
		}
	}
	if len(told) != 1 || !errors.Is(told[0], syscall.ENOBUFS) {
		t.Errorf("it told %v", told)
	}
}

type refuser struct{}

func (refuser) Write([]byte) (int, error) { return 0, syscall.ENOBUFS }
