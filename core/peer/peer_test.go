//go:build linux

package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// programUID is one of the uids that are refused in these tests.
const programUID = 60601

var programs = []UIDRange{{60600, 60610}}

// as calls f on a thread with the file system uid that new sockets get.
func as(uid int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(uid); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// dialAs connects with a socket of uid.
func dialAs(t *testing.T, uid int, address string) *net.TCPConn {
	t.Helper()
	c, err := tryDialAs(t, uid, address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryDialAs(t *testing.T, uid int, address string) (*net.TCPConn, error) {
	t.Helper()
	var c net.Conn
	err := as(uid, func() (err error) {
		c, err = dialer.Dial("tcp", address) //nolint:noctx // to this host, or to one that has gone
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), nil
}

// dialer makes connections that end when their interface has gone away. The kernel answers for a busy program, so the machine's load
// does not end them.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 6},
	Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30_000)
		})
		return errors.Join(controlErr, err)
	},
}

// place is an address of this host, and the interface that has it. Other processes add interfaces and remove them at any time.
type place struct {
	host  string
	index int
}

// places returns addresses of this host that a client may use, with zones.
func places(t *testing.T) []place {
	t.Helper()
	list := []place{{host: "127.0.0.1"}, {host: "127.3.2.1"}, {host: "::1"}}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addresses {
			n, ok := a.(*net.IPNet)
			switch {
			case !ok || n.IP.IsLoopback():
			case n.IP.IsLinkLocalUnicast() && n.IP.To4() == nil:
				list = append(list, place{n.IP.String() + "%" + i.Name, i.Index})
			default:
				list = append(list, place{n.IP.String(), i.Index})
			}
		}
	}
	return list
}

// onEveryHost calls check with the addresses of this host. What fails at an address that leaves the host meanwhile does not count. A host
// may rewrite the sources of what goes to some addresses (MASQUERADE): no socket has the address then that the server sees.
func onEveryHost(t *testing.T, check func(host string, fail func(format string, args ...any))) {
	t.Helper()
	l := listen(t)
	for _, p := range places(t) {
		c, err := tryDialAs(t, os.Geteuid(), at(p.host, l))
		if err != nil {
			if p.index == 0 {
				t.Error(err)
			}
			continue // an interface that comes up or has gone
		}
		if _, from := accept(t, l); c.LocalAddr().String() != from.String() {
			continue
		}
		var problems []string
		check(p.host, func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) })
		if len(problems) > 0 && slices.Contains(places(t), p) {
			t.Errorf("%s: %s", p.host, strings.Join(problems, "; "))
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "[::]:0") //nolint:noctx // it listens at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func at(host string, l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(host, port)
}

func accept(t *testing.T, l net.Listener) (local, remote *net.TCPAddr) {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
}

func TestBothTablesKnowTheOwner(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for sockets of another user
	l := listen(t)
	onEveryHost(t, func(host string, fail func(format string, args ...any)) {
		for _, uid := range []int{0, programUID} {
			c, err := tryDialAs(t, uid, at(host, l))
			if err != nil {
				fail("%v", err)
				return
			}
			to, from := accept(t, l)
			if !onThisHost(to, from) {
				fail("not on this host")
			}
			for _, table := range []table{netlinkTable{}, procTable{}} {
				if got, err := table.owner(from, to); err != nil || got != uid {
					fail("%T: uid %d, %v, want %d", table, got, err, uid)
				}
			}
			// Who sends its last byte and waits for the answer still owns the socket.
			if err := c.CloseWrite(); err != nil {
				fail("%v", err)
			}
			for _, table := range []table{netlinkTable{}, procTable{}} {
				if got, err := table.owner(from, to); err != nil || got != uid {
					fail("%T, half closed: uid %d, %v, want %d", table, got, err, uid)
				}
			}
			c.Close()
			for _, table := range []table{netlinkTable{}, procTable{}} {
				if got, err := table.owner(from, to); err == nil {
					fail("%T: a closed socket belongs to uid %d", table, got)
				}
			}
		}
	})
}

// A server may end its answer before it has read the whole request.
func TestAPeerHasItsOwnerAfterTheEndOfTheAnswer(t *testing.T) {
	t.Parallel()
	l := listen(t)
	dialAs(t, os.Geteuid(), at("127.0.0.1", l))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for _, table := range []table{netlinkTable{}, procTable{}} {
		if got, err := table.owner(c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)); err != nil || got != os.Geteuid() {
			t.Errorf("%T: uid %d, %v", table, got, err)
		}
	}
}

// A socket of IPv6 may speak IPv4, one of MPTCP is a TCP connection to us, and one may be bound to another local address.
func TestSocketsOfOtherKindsHaveTheirOwner(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for sockets of another user
	l := listen(t)
	port := l.Addr().(*net.TCPAddr).Port
	mapped := &unix.SockaddrInet6{Port: port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	plain := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	for _, test := range []struct {
		name             string
		domain, protocol int
		bind, to         unix.Sockaddr
	}{
		{"v4-mapped", unix.AF_INET6, unix.IPPROTO_TCP, nil, mapped},
		{"mptcp", unix.AF_INET, unix.IPPROTO_MPTCP, nil, plain},
		{"bound to another loopback address", unix.AF_INET, unix.IPPROTO_TCP, &unix.SockaddrInet4{Addr: [4]byte{127, 9, 9, 9}}, plain},
	} {
		err := as(programUID, func() error {
			fd, err := unix.Socket(test.domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, test.protocol)
			if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ENOPROTOOPT) {
				t.Logf("%s: this kernel has none", test.name)
				return nil
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd) //nolint:errcheck // only read
			if test.bind != nil {
				if err := unix.Bind(fd, test.bind); err != nil {
					return err
				}
			}
			if err := unix.Connect(fd, test.to); err != nil {
				return err
			}
			to, from := accept(t, l)
			for _, table := range []table{netlinkTable{}, procTable{}} {
				if got, err := table.owner(from, to); err != nil || got != programUID || !onThisHost(to, from) {
					t.Errorf("%s, %T: uid %d, %v, want %d", test.name, table, got, err, programUID)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A listening socket is no peer, though the kernel offers it where it finds no connection.
func TestAListenerIsNoPeer(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for sockets of another user
	l := listen(t)
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.Addr().(*net.TCPAddr).Port}
	for _, table := range []table{netlinkTable{}, procTable{}} {
		if uid, err := table.owner(address, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}); err == nil {
			t.Errorf("%T: uid %d", table, uid)
		}
	}
}

func TestOtherHostsAreOthers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		to, from string
		want     bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.200.1.1", true}, // all of 127.0.0.0/8 is local without being an interface's
		{"192.0.2.77", "192.0.2.77", true},
		{"192.0.2.2", "::ffff:127.0.0.1", true},
		{"192.0.2.77", "198.51.100.9", false},
		{"2001:db8::1", "2001:db8::2", false},
	} {
		got := onThisHost(&net.TCPAddr{IP: net.ParseIP(test.to)}, &net.TCPAddr{IP: net.ParseIP(test.from)})
		if got != test.want {
			t.Errorf("%s from %s: %v", test.to, test.from, got)
		}
	}
}

// A program may connect from any address of the host, and not only from the one that it connects to.
func TestEveryAddressOfThisHostIsOnIt(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for a network of its own
	if err := onOwnThread(func() error { return inOwnNetwork(t) }); err != nil {
		t.Error(err)
	}
}

// onOwnThread runs f on a thread that ends with f. This is never the first thread of the process, whose network is that of /proc/self/net.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f() // the thread is not unlocked
			return
		}
		err := onOwnThread(f) // on another one, because this one is taken
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

func inOwnNetwork(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, text := range []string{"192.0.2.77/32", "198.51.100.9/32", "2001:db8::1/128", "2001:db8:1::1/128"} {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		address.Flags = unix.IFA_F_NODAD // an address of IPv6 counts at once
		if err := netlink.AddrAdd(lo, address); err != nil {
			return fmt.Errorf("add %s: %w", text, err)
		}
	}
	_, local, _ := net.ParseCIDR("203.0.113.0/24")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: local, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}); err != nil {
		return err
	}
	for _, test := range []struct {
		to, from string
		want     bool
	}{
		{"192.0.2.77", "198.51.100.9", true},
		{"192.0.2.77", "203.0.113.5", true}, // of a network that is local as a whole
		{"198.51.100.9", "192.0.2.77", true},
		{"2001:db8::1", "2001:db8:1::1", true},
		{"192.0.2.77", "192.0.2.78", false},
		{"2001:db8::1", "2001:db8::2", false},
	} {
		l, err := net.Listen("tcp", net.JoinHostPort(test.to, "0")) //nolint:noctx // it listens at once
		if err != nil {
			return err
		}
		defer l.Close()
		to, from := l.Addr().(*net.TCPAddr), &net.TCPAddr{IP: net.ParseIP(test.from)}
		if test.want {
			// The kernel may add the route of a new address of IPv6 a little later.
			awaittest.UntilNil(t, "a connection from "+test.from, func() error {
				c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", l.Addr().String()) //nolint:noctx // to this host
				if err == nil {
					t.Cleanup(func() { c.Close() })
				}
				return err
			})
		}
		if got := onThisHost(to, from); got != test.want {
			t.Errorf("%s from %s: %v", test.to, test.from, got)
		}
		if !test.want {
			continue
		}
		to, from = accept(t, l)
		if uid, err := (netlinkTable{}).owner(from, to); err != nil || uid != os.Geteuid() {
			t.Errorf("%s from %s: uid %d, %v", to, from, uid, err)
		}
	}
	return nil
}

func TestTheTextOfATable(t *testing.T) {
	t.Parallel()
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:A000 0100007F:1F90 06 00000000:00000000 03:00001770 00000000     0        0 0 3 0
   2: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 60601        0 101 1 0 20 4 30 10 -1
   3: 0100007F:A002 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: nonsense
   5: 0100007F:A003 0100007F:1F90 02 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
`
	server := netip.MustParseAddrPort("127.0.0.1:8080")
	for port, want := range map[uint16]string{
		0xA000: "not exist", 0xA001: "", 0xA002: "closed", 0xA003: "not exist", 0xA004: "not exist",
	} {
		uid, err := find(strings.NewReader(text), netip.AddrPortFrom(server.Addr(), port), server)
		switch {
		case want == "" && (err != nil || uid != 60601):
			t.Errorf("%x: uid %d, %v", port, uid, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%x: uid %d, %v, want %q", port, uid, err, want)
		}
	}
}
