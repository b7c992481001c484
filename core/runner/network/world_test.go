//go:build linux

package network

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The tests run in a world of network namespaces of their own: a host, which is that of the test process, and an outside that
// has every other address. They run once as root, and once as an ordinary user in a user namespace who has no rights in the
// host's network namespace.
const worldVariable = "PYEXEC_NETWORK_TEST"

const (
	hostIPv4, hostIPv6       = "203.0.113.1", "2001:db8:1::1"
	outsideIPv4, outsideIPv6 = "203.0.113.2", "2001:db8:1::2"
	// unreachable is an address to which the host has no way.
	unreachable = "198.51.100.66"
)

// Ports of the outside's servers. Those of the host are hostPort.
const (
	echoPort = 7
	// bulkPort sends as many bytes as a line asks for.
	bulkPort = 19
	// answerPort reads until the end, then says how many bytes came.
	answerPort = 20
	// resetPort resets a connection when a byte has come.
	resetPort = 21
	hostPort  = 8080
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(worldVariable); role {
	case "":
		os.Exit(max(runIn("root", inWorld()), runIn("user", inWorld())))
	case "root", "user":
		if err := makeWorld(); err != nil {
			fmt.Fprintln(os.Stderr, "world:", err)
			os.Exit(1)
		}
		how := &syscall.SysProcAttr{}
		if role == "user" {
			how = asUser()
		}
		os.Exit(runIn("inside as "+role, how))
	default:
		goleak.VerifyTestMain(m)
	}
}

// runIn runs this test binary again.
func runIn(role string, how *syscall.SysProcAttr) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), worldVariable+"="+role)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, how
	how.Pdeathsig = syscall.SIGKILL
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return 1
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINVAL):
		// needtest needs a test.
		fmt.Printf("SKIPPED, all tests of the network as %s: no namespaces: %v\n", role, err)
		if strings.Contains(os.Getenv("PYEXEC_TEST_REQUIRE"), "root") {
			return 1
		}
		return 0
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// inWorld makes a process root in a network namespace that becomes the host's.
func inWorld() *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	}
	how := asUser()
	how.Cloneflags |= unix.CLONE_NEWNET
	return how
}

func asUser() *syscall.SysProcAttr {
	how := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return how
}

// makeWorld makes the outside, and serves it until this process ends.
func makeWorld() error {
	ready := make(chan error)
	peer := make(chan int)
	go onThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ready <- err
			return
		}
		peer <- unix.Gettid()
		<-peer
		ready <- outside()
		select {}
	})
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
	for _, address := range []string{"127.0.0.1", "::1", hostIPv4, hostIPv6, "10.99.0.1"} {
		if err := serveTCP(net.JoinHostPort(address, fmt.Sprint(hostPort)), echo); err != nil {
			return err
		}
	}
	return nil
}

func host(peer int) error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "outside"}, PeerName: "host", PeerNamespace: netlink.NsPid(peer)}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if err := configure("outside", netip.MustParseAddr(outsideIPv4), netip.MustParseAddr(outsideIPv6), hostIPv4+"/24", hostIPv6+"/64", "10.99.0.1/24"); err != nil {
		return err
	}
	_, one, err := net.ParseCIDR(unreachable + "/32")
	if err != nil {
		return err
	}
	_, some, err := net.ParseCIDR("2001:db8:66::/48")
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
	if err := configure("host", netip.Addr{}, netip.Addr{}, outsideIPv4+"/24", outsideIPv6+"/64"); err != nil {
		return err
	}
	if err := setAddresses(unix.AF_INET, netip.MustParseAddr(outsideIPv4)); err != nil {
		return err
	}
	if err := setAddresses(unix.AF_INET6, netip.MustParseAddr(outsideIPv6)); err != nil {
		return err
	}
	for port, serve := range map[int]func(*net.TCPConn){echoPort: echo, bulkPort: bulk, answerPort: answer, resetPort: resetting, 53: serveDNS} {
		if err := serveTCP(fmt.Sprintf("[::]:%d", port), serve); err != nil {
			return err
		}
	}
	if err := serveUDP(echoPort, func(m []byte) []byte { return m }); err != nil {
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

func answer(c *net.TCPConn) {
	n, err := io.Copy(io.Discard, c)
	fmt.Fprintf(c, "%d %v", n, err)
}

func resetting(c *net.TCPConn) {
	_, _ = c.Read(make([]byte, 1))
	reset(c)
}

// serveUDP answers on IPv4 and IPv6, from the address that was asked.
func serveUDP(port int, reply func([]byte) []byte) error {
	for _, address := range []string{outsideIPv4, outsideIPv6, "198.51.100.7", "192.168.7.7"} {
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

// zone is what the outside's DNS server knows.
var zone = map[string][]string{
	"public.test":   {"198.51.100.7", outsideIPv6},
	"internal.test": {"192.168.7.7"},
	"mixed.test":    {"198.51.100.8", "127.0.0.1"},
	"host.test":     {hostIPv4},
}

func serveDNS(c *net.TCPConn) {
	for {
		m, err := readFramed(c)
		if err != nil || writeFramed(c, answerDNS(m)) != nil {
			return
		}
	}
}

func answerDNS(query []byte) []byte {
	name, kind, end, err := question(query)
	if err != nil {
		return nil
	}
	m := answerWith(query, end, 0)
	if zone[name] == nil {
		return answerWith(query, end, 3)
	}
	count := 0
	for _, s := range zone[name] {
		a := netip.MustParseAddr(s)
		if a.Is4() != (kind == dnsA) || a.Is6() != (kind == dnsAAAA) {
			continue
		}
		count++
		m = append(m, 0xc0, dnsHeader)
		m = binary.BigEndian.AppendUint16(m, kind)
		m = append(m, 0, 1, 0, 0, 0, 60)
		m = append(binary.BigEndian.AppendUint16(m, uint16(len(a.AsSlice()))), a.AsSlice()...)
	}
	binary.BigEndian.PutUint16(m[6:], uint16(count))
	return m
}

// place is a network namespace of programs.
type place struct {
	*Network
	inside *namespace
	fd     *os.File
}

// newPlace makes a namespace whose way out is a Network.
func newPlace(t testing.TB, o Options) *place {
	t.Helper()
	if o.ResolvConf == "" {
		o.ResolvConf = t.TempDir() + "/resolv.conf"
		if err := os.WriteFile(o.ResolvConf, []byte("nameserver "+outsideIPv4+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &place{fd: newNamespace(t)}
	var err error
	if p.Network, err = Open(int(p.fd.Fd()), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Network.Close)
	if p.inside, err = enter(int(p.fd.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.inside.leave)
	return p
}

func newNamespace(t testing.TB) (fd *os.File) {
	t.Helper()
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		done := make(chan struct{})
		go onThread(func() {
			defer close(done)
			if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
				fd, err = os.Open("/proc/thread-self/ns/net")
			}
		})
		<-done
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fd.Close() })
	runtime.KeepAlive(fd)
	return fd
}

// dial connects as a program does.
func (p *place) connect(network, address string) (c net.Conn, err error) {
	err = p.inside.do(func() error {
		c, err = net.Dial(network, address)
		return err
	})
	return c, err
}
