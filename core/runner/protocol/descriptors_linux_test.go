package protocol

import (
	"errors"
	"io"
	"net"
	"os"
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
		w.SendFile(FrameFile, f)
		_, _, err := frames.Header()
		must(t, err)
	}
	w.SendFile(FrameFile, f)
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
	w.SendFile(FrameFile, f)
	must(t, conn.Close())
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) || r.Take() != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
