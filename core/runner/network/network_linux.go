package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Policy decides whether a program may make a connection. It is asked once for each TCP connection and for each flow of
// datagrams, after the address was found to be in Ranges. An error refuses the connection. It is called concurrently, and ctx
// ends when the connection is not wanted any more.
type Policy func(ctx context.Context, c Connection) error

// Connection is what a program asks for.
type Connection struct {
	// Protocol is tcp or udp.
	Protocol string
	Address  netip.AddrPort
	// Names are the names for which the program got the address from DNS, the latest first. It is empty for an address that the
	// program did not look up.
	Names []string
}

// Options of Open. The zero value allows public addresses.
type Options struct {
	Ranges Ranges
	// Policy may be nil: everything in Ranges is allowed.
	Policy Policy
	// UID and GID own the sockets outside, so that the host's rules about users apply to them. 0 leaves them to the runner.
	UID, GID int
	// MaxConnections bounds TCP connections, also those that are not established yet. The default is 512.
	MaxConnections int
	// MaxFlows bounds flows of datagrams. The default is 256.
	MaxFlows int
	// Loopback lists TCP ports of the host's 127.0.0.1 that programs reach at their own 127.0.0.1. Only who serves there decides who may use them.
	Loopback []uint16
	// ResolvConf names the file that names the host's DNS servers. Programs have a copy of it: Network answers at the servers'
	// addresses that it has when Open is called, and asks those that it has at the time of a question. The default is
	// /etc/resolv.conf.
	ResolvConf string
}

const (
	defaultConnections, defaultFlows = 512, 256
	// dialTime bounds an attempt to connect. The program's kernel repeats its own attempt for about two minutes; each time there
	// is another attempt.
	dialTime = 30 * time.Second
	// acceptTime bounds the time from a connection outside to the one inside. A program that has given up never completes it.
	acceptTime = 10 * time.Second
)

// Network is the way out of one network namespace. It is safe for concurrent use.
type Network struct {
	options   Options
	namespace *namespace
	sockets   sockets
	names     *names
	pipes     pipes

	ctx  context.Context //nolint:containedctx // the life of the Network
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	links  map[flow]*link
	counts map[byte]int // links by protocol
	ended  bool
}

var errClosed = errors.New("the network is closed")

// Open gives the network namespace that fd describes a way out. The caller has CAP_NET_ADMIN and CAP_SYS_ADMIN in the user
// namespace that owns it, and nothing else has been set up in it. Programs in it must not have such capabilities. Open does not
// keep fd. The connections outside are those of the network namespace of the calling process.
func Open(fd int, o Options) (*Network, error) {
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultConnections
	}
	if o.MaxFlows == 0 {
		o.MaxFlows = defaultFlows
	}
	if o.ResolvConf == "" {
		o.ResolvConf = "/etc/resolv.conf"
	}
	inside, err := enter(fd)
	if err != nil {
		return nil, err
	}
	n := &Network{options: o, namespace: inside, names: newNames(), pipes: newPipes(), links: map[flow]*link{}, counts: map[byte]int{}}
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	if err := inside.do(func() error { return n.sockets.open(resolvers(o.ResolvConf), o.Loopback) }); err != nil {
		n.sockets.close()
		inside.leave()
		return nil, err
	}
	n.wg.Go(func() { n.readQueue(n.admit) })
	for _, l := range n.sockets.listeners {
		if l != nil {
			n.wg.Go(func() { n.accept(l) })
		}
	}
	for _, l := range n.sockets.loopback {
		n.wg.Go(func() { n.forward(l) })
	}
	for _, c := range n.sockets.resolverUDP {
		n.wg.Go(func() { n.resolveUDP(c.(*net.UDPConn)) }) //nolint:forcetypeassert // a UDP socket
	}
	for _, l := range n.sockets.resolverTCP {
		n.wg.Go(func() { n.resolveTCP(l) })
	}
	return n, nil
}

// Reset ends all connections and flows, and forgets names. Programs of the namespace must have ended.
func (n *Network) Reset() {
	n.mu.Lock()
	for _, l := range n.links {
		l.stop(errClosed)
	}
	n.mu.Unlock()
	n.names.clear()
}

// Close ends all connections and the way out. It waits until nothing of Network is left but the namespace. It may be called
// again.
func (n *Network) Close() {
	n.mu.Lock()
	ended := n.ended
	n.ended = true
	n.mu.Unlock()
	n.stop(errClosed)
	if ended {
		n.wg.Wait()
		return
	}
	n.sockets.close()
	n.wg.Wait()
	n.pipes.close()
	n.namespace.leave()
}

// refusal is an error of the policy, not of a network.
type refusal struct{ error }

// dial connects to what a program wants. It is the only way out, except for DNS.
func (n *Network) dial(ctx context.Context, of flow) (net.Conn, error) {
	c := Connection{Protocol: "tcp", Address: of.target}
	if of.protocol == unix.IPPROTO_UDP {
		c.Protocol = "udp"
	}
	if err := n.permit(of.target.Addr()); err != nil {
		return nil, err
	}
	c.Names = n.names.of(of.target.Addr())
	if n.options.Policy != nil {
		if err := n.options.Policy(ctx, c); err != nil {
			return nil, refusal{err}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	d := net.Dialer{Control: n.control}
	return d.DialContext(ctx, c.Protocol, of.target.String())
}

// control sees a socket before it connects to address.
func (n *Network) control(_, address string, raw syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if err := n.permit(to.Addr()); err != nil {
		return err
	}
	if n.options.UID == 0 {
		return nil
	}
	owned := raw.Control(func(fd uintptr) { err = unix.Fchown(int(fd), n.options.UID, n.options.GID) })
	return errors.Join(owned, err)
}

// permit returns why no program may reach a, or nil.
func (n *Network) permit(a netip.Addr) error { return n.options.Ranges.Check(a) }

// Check returns why a may not be reached, or nil: it is not public and not open, or it is an address of the network namespace of the calling
// process.
func (r Ranges) Check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if !r.Public(a) {
		return refusal{fmt.Errorf("%s is not a public address, and not in an open range", a)}
	}
	for _, reached := range []netip.Addr{a, translated(a)} {
		if r.opensExactly(reached) {
			continue
		}
		own, err := ownAddress(reached)
		if err != nil {
			return err
		}
		if own {
			return refusal{fmt.Errorf("%s is an address of this host", a)}
		}
	}
	return nil
}

// markOf returns the mark with which the ruleset tells a program about err. 0 means that it is not told.
func markOf(err error) uint32 {
	var refused refusal
	switch {
	case errors.As(err, &refused):
		return markProhibited
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return markReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EADDRNOTAVAIL):
		return markNoRoute
	case errors.Is(err, unix.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return 0
	default:
		return markNoHost
	}
}
