package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// namespace is an operating system thread inside of a network namespace. It opens sockets there; any goroutine may use them.
type namespace struct {
	jobs chan func()
}

// enter starts the thread in the namespace that fd describes. It ends with leave.
func enter(fd int) (*namespace, error) {
	n := &namespace{jobs: make(chan func())}
	done := make(chan error)
	go onThread(func() {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		close(done)
		for job := range n.jobs {
			job()
		}
	})
	if err := <-done; err != nil {
		return nil, err
	}
	return n, nil
}

func (n *namespace) leave() { close(n.jobs) }

// do runs f on the thread.
func (n *namespace) do(f func() error) error {
	done := make(chan error, 1)
	n.jobs <- func() { done <- f() }
	return <-done
}

// onThread runs f on a thread that ends with it. The first thread of a process cannot end, and /proc/self shows its namespaces.
func onThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // on another thread, because this goroutine holds the first
		defer close(done)
		onThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// sockets are what Network has inside of a namespace. The second of a pair is for IPv6, and nil where the kernel has none.
type sockets struct {
	queue     *os.File
	listeners [2]net.Listener
	// The resolver answers at every address at which the host's resolv.conf has a DNS server.
	resolverUDP []net.PacketConn
	resolverTCP []net.Listener
	// loopback listens at Options.Loopback.
	loopback []net.Listener
}

func (s *sockets) close() {
	if s.queue != nil {
		_ = s.queue.Close()
	}
	for _, l := range slices.Concat(s.resolverTCP, s.loopback, s.listeners[:]) {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, c := range s.resolverUDP {
		_ = c.Close()
	}
}

// open prepares the calling thread's network namespace. resolvers are where DNS is answered, loopback is Options.Loopback.
func (s *sockets) open(resolvers []netip.AddrPort, loopback []uint16) error {
	if err := setAddresses(unix.AF_INET, insideIPv4, relayIPv4); err != nil {
		return err
	}
	err := setAddresses(unix.AF_INET6, insideIPv6, relayIPv6)
	if err == nil {
		s.listeners[1], err = listen(unix.SOCK_STREAM, netip.AddrPortFrom(relayIPv6, relayPort), true)
	}
	if err != nil && !withoutIPv6(err) {
		return err
	}
	if s.listeners[0], err = listen(unix.SOCK_STREAM, netip.AddrPortFrom(relayIPv4, relayPort), true); err != nil {
		return err
	}
	for _, r := range resolvers {
		if r.Addr().Is6() && s.listeners[1] == nil {
			continue
		}
		if err := s.resolver(r); err != nil {
			return err
		}
	}
	for _, port := range loopback {
		l, err := listen(unix.SOCK_STREAM, onLoopback(port), false)
		if err != nil {
			return err
		}
		s.loopback = append(s.loopback, l)
	}
	if s.queue, err = openQueue(); err != nil {
		return err
	}
	return loadRuleset(resolvers)
}

func onLoopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

func (s *sockets) resolver(at netip.AddrPort) error {
	tcp, err := listen(unix.SOCK_STREAM, at, true)
	if err != nil {
		return err
	}
	s.resolverTCP = append(s.resolverTCP, tcp)
	fd, err := bound(unix.SOCK_DGRAM, at, true)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "dns")
	defer file.Close()
	udp, err := net.FilePacketConn(file)
	if err != nil {
		return err
	}
	s.resolverUDP = append(s.resolverUDP, udp)
	return nil
}

// withoutIPv6 reports whether err says that the kernel has no IPv6, or that it is switched off.
func withoutIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// bound returns a socket with an address. A transparent one may have an address of another machine.
func bound(kind int, address netip.AddrPort, transparent bool) (fd int, err error) {
	family, level, option := unix.AF_INET, unix.SOL_IP, unix.IP_TRANSPARENT
	if address.Addr().Is6() {
		family, level, option = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("socket inside: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && transparent {
		err = unix.SetsockoptInt(fd, level, option, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(address))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("socket inside: %s: %w", address, err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func listen(kind int, address netip.AddrPort, transparent bool) (net.Listener, error) {
	fd, err := bound(kind, address, transparent)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, fmt.Errorf("socket inside: %w", err)
	}
	return net.FileListener(file)
}

// backlog is how many connections may wait to be accepted.
const backlog = 1024

// setAddresses gives lo the addresses and makes lo the way to every other address, with the first one as the source.
func setAddresses(family byte, addresses ...netip.Addr) error {
	fd, err := netlinkSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)                //nolint:errcheck // the answers have come
	index := order.AppendUint32(nil, 1) // of lo, in every namespace
	up := slices.Concat([]byte{unix.AF_UNSPEC, 0, 0, 0}, index, order.AppendUint32(nil, unix.IFF_UP), order.AppendUint32(nil, unix.IFF_UP))
	if _, err := request(fd, 1, message(unix.RTM_NEWLINK, unix.NLM_F_ACK, up)); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	const replace = unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	for _, a := range addresses {
		header := append([]byte{family, byte(a.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}, index...)
		if _, err := request(fd, 1, message(unix.RTM_NEWADDR, replace, header, attribute(unix.IFA_LOCAL, a.AsSlice()), attribute(unix.IFA_ADDRESS, a.AsSlice()))); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	header := []byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	if _, err := request(fd, 1, message(unix.RTM_NEWROUTE, replace, header, attribute(unix.RTA_OIF, index), attribute(unix.RTA_PREFSRC, addresses[0].AsSlice()))); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

// ownAddress reports whether a is not the address of another machine: the kernel's routes of the calling thread's network
// namespace do not send it there.
func ownAddress(a netip.Addr) (bool, error) {
	fd, err := netlinkSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd) //nolint:errcheck // the answer has come
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	header := []byte{family, byte(a.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	route, err := request(fd, 1, message(unix.RTM_GETROUTE, 0, header, attribute(unix.RTA_DST, a.AsSlice())))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return false, nil // connect says so, too
	case err != nil:
		return false, fmt.Errorf("route to %s: %w", a, err)
	case len(route) < unix.SizeofRtMsg:
		return false, fmt.Errorf("route to %s: short answer", a)
	}
	const typeOffset = 7
	return route[typeOffset] != unix.RTN_UNICAST, nil
}
