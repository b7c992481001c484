package networktest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the world.
const (
	HostIPv4, HostIPv6 = "203.0.113.1", "2001:db8:1::1"
	// HostPrivate is an address of the host in a private range.
	HostPrivate              = "10.99.0.1"
	OutsideIPv4, OutsideIPv6 = "203.0.113.2", "2001:db8:1::2"
	// Unreachable is an address to which the host has no way, and UnroutedIPv6 is one without a route.
	Unreachable, UnroutedIPv6 = "198.51.100.66", "2001:db8:66::1"
)

// Ports of the outside's servers, at every address for TCP. HostPort is where the host itself echoes, also at loopback.
const (
	EchoPort = 7
	// BulkPort sends as many bytes as a line asks for.
	BulkPort = 19
	// CountPort reads until the end, then says how many bytes came and whether there was an error.
	CountPort = 20
	// ResetPort resets a connection when a byte has come.
	ResetPort = 21
	HostPort  = 8080
)

// Zone is what the outside's DNS server knows. It is at OutsideIPv4 and OutsideIPv6.
func Zone(name string) []string {
	return map[string][]string{
		"public.test":   {"198.51.100.7", OutsideIPv6},
		"internal.test": {"192.168.7.7"},
		"mixed.test":    {"198.51.100.8", "127.0.0.1"},
		"host.test":     {HostIPv4},
	}[name]
}

// makeWorld makes the outside, and serves it until this process ends. The process must be root in network and mount namespaces of
// its own, in which makeWorld replaces the resolv.conf. end removes what would stay.
func makeWorld() (end func(), err error) {
	name, err := nameServer()
	if err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(name) }, connect()
}

func connect() error {
	ready := make(chan error)
	peer := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the process
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ready <- err
			return
		}
		peer <- unix.Gettid()
		<-peer
		ready <- outside()
		select {}
	}()
	select {
	case err := <-ready:
		return err
	case tid := <-peer:
		if err := host(tid); err != nil {
			return err
		}
		peer <- 0
	}
	if err := <-ready; err != nil {
		return err
	}
	for _, address := range []string{"127.0.0.1", "::1", HostIPv4, HostIPv6, HostPrivate} {
		if err := serveTCP(net.JoinHostPort(address, fmt.Sprint(HostPort)), echo); err != nil {
			return err
		}
	}
	return nil
}

// nameServer puts a resolv.conf over the machine's, in this mount namespace only.
func nameServer() (name string, err error) {
	f, err := os.CreateTemp("", "resolv.conf-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("nameserver " + OutsideIPv4 + "\n")
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount(f.Name(), "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("resolv.conf: %w", err)
	}
	return f.Name(), nil
}

func host(peer int) error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "outside"}, PeerName: "host", PeerNamespace: netlink.NsPid(peer)}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if err := configure("outside", netip.MustParseAddr(OutsideIPv4), netip.MustParseAddr(OutsideIPv6), HostIPv4+"/24", HostIPv6+"/64", HostPrivate+"/24"); err != nil {
		return err
	}
	_, one, err := net.ParseCIDR(Unreachable + "/32")
	if err != nil {
		return err
	}
	_, some, err := net.ParseCIDR(UnroutedIPv6 + "/48")
	if err != nil {
		return err
	}
	return errors.Join(netlink.RouteAdd(&netlink.Route{Dst: one, Type: unix.RTN_UNREACHABLE}),
		netlink.RouteAdd(&netlink.Route{Dst: some, Type: unix.RTN_THROW}))
}

// configure brings up lo and the named interface, with addresses and routes by the gateways.
func configure(name string, gateway4, gateway6 netip.Addr, addresses ...string) error {
	for _, n := range []string{"lo", name} {
		l, err := netlink.LinkByName(n)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		if n == "lo" {
			continue
		}
		for _, a := range addresses {
			parsed, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			parsed.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(l, parsed); err != nil {
				return err
			}
		}
		for _, g := range []netip.Addr{gateway4, gateway6} {
			if !g.IsValid() {
				continue
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: g.AsSlice()}); err != nil {
				return fmt.Errorf("gateway: %w", err)
			}
		}
	}
	return nil
}

// outside is called in the outside's namespace. It has all addresses that the host does not have.
func outside() error {
	if err := configure("host", netip.Addr{}, netip.Addr{}, OutsideIPv4+"/24", OutsideIPv6+"/64"); err != nil {
		return err
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} { // every address is its own
		_, dst, err := net.ParseCIDR(all)
		if err != nil {
			return err
		}
		const lo = 1
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo, Dst: dst, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}); err != nil {
			return fmt.Errorf("every address: %w", err)
		}
	}
	for port, serve := range map[int]func(*net.TCPConn){EchoPort: echo, BulkPort: bulk, CountPort: count, ResetPort: resetting, 53: serveDNS} {
		if err := serveTCP(fmt.Sprintf("[::]:%d", port), serve); err != nil {
			return err
		}
	}
	if err := serveUDP(EchoPort, func(m []byte) []byte { return m }); err != nil {
		return err
	}
	return serveUDP(53, answerDNS)
}

func serveTCP(address string, serve func(*net.TCPConn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return nil
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func bulk(c *net.TCPConn) {
	var n int64
	if _, err := fmt.Fscanln(bufio.NewReader(c), &n); err != nil {
		return
	}
	chunk := make([]byte, 256<<10)
	for n > 0 {
		wrote, err := c.Write(chunk[:min(n, int64(len(chunk)))])
		if err != nil {
			return
		}
		n -= int64(wrote)
	}
}

func count(c *net.TCPConn) {
	n, err := io.Copy(io.Discard, c)
	fmt.Fprintf(c, "%d %v", n, err)
}

func resetting(c *net.TCPConn) {
	_, _ = c.Read(make([]byte, 1))
	_ = c.SetLinger(0)
}

// serveUDP answers on IPv4 and IPv6, from the address that was asked.
func serveUDP(port int, reply func([]byte) []byte) error {
	for _, address := range []string{OutsideIPv4, OutsideIPv6, "198.51.100.7", "192.168.7.7"} {
		a, err := netip.ParseAddr(address)
		if err != nil {
			return err
		}
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, uint16(port))))
		if err != nil {
			return err
		}
		go func() {
			buffer := make([]byte, 64<<10)
			for {
				n, from, err := c.ReadFromUDPAddrPort(buffer)
				if err != nil {
					return
				}
				_, _ = c.WriteToUDPAddrPort(reply(buffer[:n]), from)
			}
		}()
	}
	return nil
}

func serveDNS(c *net.TCPConn) {
	for {
		m, err := readMessage(c)
		if err != nil || writeMessage(c, answerDNS(m)) != nil {
			return
		}
	}
}

// answerDNS answers the question of a DNS message.
func answerDNS(query []byte) []byte {
	const header, isResponse, noSuchName = 12, 0x80, 3
	if len(query) < header+5 {
		return nil
	}
	var labels []string
	end := header
	for end < len(query) && query[end] != 0 {
		labels = append(labels, string(query[end+1:end+1+int(query[end])]))
		end += 1 + int(query[end])
	}
	end += 5 // the last label, type and class
	m := slices.Clone(query[:end])
	m[2] |= isResponse
	copy(m[6:], make([]byte, 6))
	known := Zone(strings.ToLower(strings.Join(labels, ".")))
	if known == nil {
		m[3] |= noSuchName
	}
	for _, s := range known {
		a := netip.MustParseAddr(s)
		if kind := map[bool]byte{true: 1, false: 28}[a.Is4()]; query[end-3] != kind {
			continue
		}
		m[7]++
		m = append(m, 0xc0, header, 0, query[end-3], 0, 1, 0, 0, 0, 60, 0, byte(len(a.AsSlice())))
		m = append(m, a.AsSlice()...)
	}
	return m
}

func readMessage(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, m)
	return m, err
}

func writeMessage(w io.Writer, m []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}
