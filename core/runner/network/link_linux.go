package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// link is a connection or a flow of datagrams, from its first packet to its end.
type link struct {
	flow
	ctx  context.Context //nolint:containedctx // the life of the link
	stop context.CancelCauseFunc

	// The following belong to Network.mu.
	held    []uint32 // packets that wait for the verdict, until settled
	settled bool
	// accepted has room for the connection that the listener accepts. It is nil for datagrams.
	accepted chan *net.TCPConn
}

// maxHeld bounds the datagrams of a flow that wait for its verdict.
const maxHeld = 16

// admit decides about a packet that begins a flow, or that comes before its flow is decided about.
func (n *Network) admit(id uint32, of flow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[of]
	switch {
	case l != nil && l.settled:
		n.verdict(id, nfAccept, 0)
	case l != nil && of.protocol == unix.IPPROTO_UDP && len(l.held) < maxHeld:
		l.held = append(l.held, id)
	case l != nil:
		n.verdict(id, nfDrop, 0) // a repetition
	case n.ended, n.counts[of.protocol] >= n.bound(of.protocol):
		n.verdict(id, nfAccept, markProhibited)
	default:
		l = &link{flow: of, held: []uint32{id}, accepted: make(chan *net.TCPConn, 1)}
		l.ctx, l.stop = context.WithCancelCause(n.ctx)
		n.links[of] = l
		n.counts[of.protocol]++
		n.wg.Go(func() {
			defer n.remove(l)
			n.serve(l)
		})
	}
}

func (n *Network) bound(protocol byte) int {
	if protocol == unix.IPPROTO_UDP {
		return n.options.MaxFlows
	}
	return n.options.MaxConnections
}

func (n *Network) remove(l *link) {
	l.stop(errClosed)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l.flow)
	n.counts[l.protocol]--
	select {
	case inside := <-l.accepted:
		reset(inside)
	default:
	}
}

// settle gives the packets that l holds their verdict.
func (n *Network) settle(l *link, what, mark uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.settled = true
	for _, id := range l.held {
		n.verdict(id, what, mark)
	}
	l.held = nil
}

// serve connects l to the outside and relays until both ends have ended.
func (n *Network) serve(l *link) {
	outside, err := n.dial(l.ctx, l.flow)
	if err == nil && l.protocol == unix.IPPROTO_UDP {
		var inside net.Conn
		if inside, err = n.answering(l.flow); err == nil {
			n.settle(l, nfAccept, 0)
			relayDatagrams(l.ctx, inside, outside)
			return
		}
		_ = outside.Close()
	}
	if err != nil {
		if mark := markOf(err); mark != 0 {
			n.settle(l, nfAccept, mark)
		} else {
			n.settle(l, nfDrop, 0)
		}
		return
	}
	n.settle(l, nfAccept, 0)
	gaveUp := time.NewTimer(acceptTime)
	defer gaveUp.Stop()
	select {
	case inside := <-l.accepted:
		n.pipes.relayStream(l.ctx, inside, outside.(*net.TCPConn)) //nolint:forcetypeassert // tcp was dialed
	case <-gaveUp.C:
		_ = outside.Close()
	case <-l.ctx.Done():
		reset(outside.(*net.TCPConn)) //nolint:forcetypeassert // tcp was dialed
	}
}

// accept hands the connections of a listener to their links.
func (n *Network) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil {
				return
			}
			continue // the connection has ended already, or there is no descriptor left
		}
		inside := conn.(*net.TCPConn) //nolint:forcetypeassert // a TCP listener
		of := flow{unix.IPPROTO_TCP, addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr())}
		n.mu.Lock()
		l := n.links[of]
		taken := false
		if l != nil {
			select {
			case l.accepted <- inside:
				taken = true
			default:
			}
		}
		n.mu.Unlock()
		if !taken {
			reset(inside)
		}
	}
}

// forward passes the connections of a listener of Options.Loopback on to the same port of the host's loopback.
func (n *Network) forward(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil {
				return
			}
			continue // as in accept
		}
		inside := conn.(*net.TCPConn) //nolint:forcetypeassert // a TCP listener
		n.wg.Go(func() {
			outside, err := new(net.Dialer).DialContext(n.ctx, "tcp", addrPort(inside.LocalAddr()).String())
			if err != nil {
				reset(inside)
				return
			}
			n.pipes.relayStream(n.ctx, inside, outside.(*net.TCPConn)) //nolint:forcetypeassert // tcp was dialed
		})
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort() //nolint:forcetypeassert // of a TCP connection
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// answering returns a socket inside that has the address of the machine outside, and that is connected to the program's.
func (n *Network) answering(of flow) (conn net.Conn, err error) {
	err = n.namespace.do(func() error {
		fd, err := bound(unix.SOCK_DGRAM, of.target, true)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "flow")
		defer file.Close()
		if err := unix.Connect(fd, sockaddr(of.source)); err != nil {
			return fmt.Errorf("connect inside: %w", err)
		}
		conn, err = net.FileConn(file)
		return err
	})
	return conn, err
}
