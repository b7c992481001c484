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
func relayStream(ctx context.Context, a, b *net.TCPConn) {
	abort := sync.OnceFunc(func() {
		reset(a)
		reset(b)
	})
	defer context.AfterFunc(ctx, abort)()
	copyTo := func(to, from *net.TCPConn) {
		if err := transfer(to, from, nil); err != nil {
			abort()
			return
		}
		_ = to.CloseWrite()
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
			err := transfer(to, from, extend)
			// The other machine may have no such port yet.
			if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EMSGSIZE) {
				return
			}
		}
	}
	var other sync.WaitGroup
	other.Go(func() { copyTo(a, b); end() })
	copyTo(b, a)
	end()
	other.Wait()
}

// buffers are for data on its way. A link has one only while there is data.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

const bufferBytes = 128 << 10

// transfer copies from one socket to another until the end of from, which is no error. It calls moved for each datagram, unless
// moved is nil; from and to are then sockets for datagrams, which have no end.
func transfer(to io.Writer, from net.Conn, moved func()) error {
	raw, err := from.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // all have it
	if err != nil {
		return err
	}
	for {
		var buffer *[bufferBytes]byte
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			buffer = buffers.Get().(*[bufferBytes]byte) //nolint:forcetypeassert // the pool's only type
			n, failed = retry(func() (int, error) { return unix.Read(int(fd), buffer[:]) })
			if errors.Is(failed, unix.EAGAIN) {
				buffers.Put(buffer)
				return false
			}
			return true
		})
		if err != nil {
			return err
		}
		if failed == nil && (n > 0 || moved != nil) {
			_, failed = to.Write(buffer[:n])
		}
		buffers.Put(buffer)
		switch {
		case failed != nil:
			return failed
		case moved != nil:
			moved()
		case n == 0:
			return nil
		}
	}
}

func retry(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
