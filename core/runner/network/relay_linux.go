package network

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// flowTime is how long a flow of datagrams may be silent.
const flowTime = 60 * time.Second

// reset closes c so that the other end sees a reset, not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// relayStream copies both ways until both have ended, and passes on ends and resets. ctx ends it with resets.
func (s pipes) relayStream(ctx context.Context, a, b *net.TCPConn) {
	abort := sync.OnceFunc(func() {
		reset(a)
		reset(b)
	})
	defer context.AfterFunc(ctx, abort)()
	copyTo := func(to, from *net.TCPConn) {
		for {
			n, err := s.move(to, from)
			if err != nil {
				abort()
				return
			}
			if n == 0 {
				_ = to.CloseWrite()
				return
			}
		}
	}
	var other sync.WaitGroup
	other.Go(func() { copyTo(a, b) })
	copyTo(b, a)
	other.Wait()
	_ = a.Close()
	_ = b.Close()
}

// relayDatagrams copies both ways until neither has received anything for flowTime.
func relayDatagrams(ctx context.Context, a, b net.Conn) {
	end := sync.OnceFunc(func() {
		_ = a.Close()
		_ = b.Close()
	})
	defer context.AfterFunc(ctx, end)()
	defer end()
	extend := func() {
		deadline := time.Now().Add(flowTime)
		_ = a.SetReadDeadline(deadline)
		_ = b.SetReadDeadline(deadline)
	}
	extend()
	copyTo := func(to, from net.Conn) {
		for {
			err := moveDatagram(to, from)
			// The other machine may have no such port yet.
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EMSGSIZE) {
				return
			}
			extend()
		}
	}
	var other sync.WaitGroup
	other.Go(func() { copyTo(a, b); end() })
	copyTo(b, a)
	end()
	other.Wait()
}

// buffers are for datagrams on their way. A flow has one only while there is data.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

const bufferBytes = 64 << 10

// moveDatagram waits for a datagram, and copies it from one socket to another.
func moveDatagram(to io.Writer, from net.Conn) error {
	raw, err := from.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // all have it
	if err != nil {
		return err
	}
	var buffer *[bufferBytes]byte
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		buffer = buffers.Get().(*[bufferBytes]byte) //nolint:forcetypeassert // the pool's only type
		if n, failed = unix.Read(int(fd), buffer[:]); waits(failed) {
			buffers.Put(buffer)
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	defer buffers.Put(buffer)
	if failed == nil {
		_, failed = to.Write(buffer[:n])
	}
	return failed
}

// waits reports whether a call must be repeated when the descriptor is ready.
func waits(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }
