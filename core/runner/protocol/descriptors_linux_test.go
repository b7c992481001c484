package protocol

import (
	"errors"
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
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "runner")
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("not read")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	r := &MarkerReader{Src: &DescriptorReader{Conn: conn.(*net.UnixConn)}, Marker: Marker(1)} //nolint:forcetypeassert // a socketpair
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
