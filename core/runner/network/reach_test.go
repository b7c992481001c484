//go:build linux

package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// said sends a line over a new connection of network and returns the echo of it.
func said(connect func(network, address string) (net.Conn, error), network, address string) (string, error) {
	c, err := connect(network, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "hello"); err != nil {
		return "", err
	}
	reply := make([]byte, 5)
	_, err = io.ReadFull(c, reply)
	return string(reply), err
}

func TestTheOutsideIsReached(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for _, c := range []struct{ network, address string }{
		{"tcp", "198.51.100.7:7"}, {"tcp", "[2001:db8:5::9]:7"}, {"tcp", "[" + networktest.OutsideIPv6 + "]:7"},
		{"tcp", "[::ffff:198.51.100.7]:7"},
		{"udp", "198.51.100.7:7"}, {"udp", "[" + networktest.OutsideIPv6 + "]:7"},
	} {
		if got, err := said(p.connect, c.network, c.address); got != "hello" || err != nil {
			t.Errorf("%s %s: %q, %v", c.network, c.address, got, err)
		}
	}
}

// forbidden are addresses that the host reaches, and that a program does not.
var forbidden = []string{
	networktest.HostIPv4 + ":8080", "[" + networktest.HostIPv6 + "]:8080", "10.99.0.1:8080", // the host's own
	"[64:ff9b::cb00:7101]:7", "[2002:cb00:7101::1]:7", // translated to the host's own
	"169.254.169.254:7", "168.63.129.16:7", "100.100.100.200:7", "[fd00:ec2::254]:7", // metadata services of clouds
	"192.168.7.7:7", "10.1.2.3:7", "172.16.0.1:7", "172.31.255.254:7", "100.64.0.1:7", "198.18.0.1:7", "240.0.0.1:7",
	"[fc00::1]:7", "[fdff::1]:7", "[fec0::1]:7", "[64:ff9b::a00:1]:7", "[64:ff9b:1::1]:7", "[2002:c0a8:101::1]:7", "[2001::1]:7",
}

func TestWhatIsNotPublicIsNotReached(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for _, address := range forbidden {
		if got, err := said(net.Dial, "tcp", address); got != "hello" {
			t.Errorf("the host itself does not reach %s: %v", address, err)
		}
		_, err := p.connect("tcp", address)
		if want := refusalError(address); !errors.Is(err, want) {
			t.Errorf("connect to %s: %v, want %v", address, err, want)
		}
		if c, err := p.connect("udp", address); err == nil {
			fmt.Fprint(c, "hello")
			context.AfterFunc(awaittest.Context(t), func() { c.Close() })
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, refusalError(address)) {
				t.Errorf("a datagram to %s: %v", address, err)
			}
			c.Close()
		}
	}
}

// refusalError is what a program gets from connect to an address that it must not reach.
func refusalError(address string) error {
	if strings.HasPrefix(address, "[") {
		return unix.EACCES
	}
	return unix.EHOSTUNREACH
}

func TestLoopbackIsTheNamespacesOwn(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "192.0.0.1:8080", "192.0.0.77:8080"} {
		if _, err := p.connect("tcp", address); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to %s: %v", address, err)
		}
	}
	var l net.Listener
	must(t, p.inside.do(func() (err error) { l, err = net.Listen("tcp4", "127.0.0.1:8080"); return err }))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	if got, err := said(p.connect, "tcp", "127.0.0.1:8080"); got != "hello" {
		t.Error(got, err)
	}
}

// TestAPortOfTheHostsLoopbackIsLent has the port of an echo on the host. The other addresses of the loopback stay the namespace's own.
func TestAPortOfTheHostsLoopbackIsLent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{Loopback: []uint16{networktest.HostPort}})
	for range 2 {
		if got, err := said(p.connect, "tcp", "127.0.0.1:8080"); got != "hello" {
			t.Error(got, err)
		}
	}
	for _, address := range []string{"127.0.0.1:8081", "127.0.0.2:8080", "[::1]:8080"} {
		if _, err := p.connect("tcp", address); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to %s: %v", address, err)
		}
	}
	if _, err := p.connect("tcp", networktest.HostIPv4+":8080"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("an address of the host: %v", err)
	}
}

func TestAProgramDoesNotReachTheSocketsOfTheRelay(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for _, address := range []string{"192.0.0.1:1", "[fd00:5059:4578::1]:1"} {
		if got, err := said(p.connect, "tcp", address); err == nil {
			t.Errorf("%s answers %q", address, got)
		}
	}
}

func TestAnOpenRangeIsReached(t *testing.T) {
	t.Parallel()
	ranges, err := ParseRanges([]string{"192.168.7.0/24", "10.0.0.0/8", "fd00:1::/32"})
	must(t, err)
	p := newPlace(t, Options{Ranges: ranges})
	for _, address := range []string{"192.168.7.7:7", "10.1.2.3:7", "[fd00:1::5]:7", "198.51.100.7:7"} {
		if got, err := said(p.connect, "tcp", address); got != "hello" {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"192.168.8.7:7", "10.99.0.1:8080", "[fd00:2::5]:7"} {
		if _, err := p.connect("tcp", address); !errors.Is(err, refusalError(address)) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAnAddressOfTheHostNeedsAPrefixOfItsOwn(t *testing.T) {
	t.Parallel()
	ranges, err := ParseRanges([]string{"10.99.0.1/32"})
	must(t, err)
	p := newPlace(t, Options{Ranges: ranges})
	if got, err := said(p.connect, "tcp", "10.99.0.1:8080"); got != "hello" {
		t.Error(err)
	}
}

func TestErrorsOfTheOutsideAreThoseOfConnect(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for address, want := range map[string]error{
		"198.51.100.7:9": unix.ECONNREFUSED, "[2001:db8:5::9]:9": unix.ECONNREFUSED,
		networktest.Unreachable + ":7": unix.EHOSTUNREACH, "[" + networktest.UnroutedIPv6 + "]:7": unix.ENETUNREACH,
	} {
		for who, dial := range map[string]func(string, string) (net.Conn, error){"host": net.Dial, "program": p.connect} {
			if _, err := dial("tcp", address); !errors.Is(err, want) {
				t.Errorf("%s, connect to %s: %v, want %v", who, address, err, want)
			}
		}
	}
}

func TestASocketOutsideBelongsToTheProgramsUser(t *testing.T) {
	if networktest.Role() != networktest.AsRoot {
		t.Skip("SKIPPED, only root gives sockets to another user")
	}
	needtest.NeedRoot(t)
	t.Parallel()
	ranges, err := ParseRanges([]string{"10.99.0.1/32"})
	must(t, err)
	const uid = 60123
	p := newPlace(t, Options{Ranges: ranges, UID: uid, GID: uid})
	c, err := p.connect("tcp", "10.99.0.1:8080")
	must(t, err)
	defer c.Close()
	table, err := os.ReadFile("/proc/thread-self/net/tcp")
	must(t, err)
	if !strings.Contains(string(table), fmt.Sprintf(" %d ", uid)) {
		t.Errorf("no socket of uid %d:\n%s", uid, table)
	}
}

// withoutRights calls f in the namespace with what a program has: no capabilities.
func (p *place) withoutRights(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go onThread(func() {
		done <- func() error {
			if err := unix.Setns(int(p.fd.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			var none [2]unix.CapUserData
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
				return err
			}
			f()
			return nil
		}()
	})
	must(t, <-done)
}

func TestAProgramCannotChangeTheNamespace(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	p.withoutRights(t, func() {
		const deleteTable = 2
		flush := nftMessage(deleteTable, netfilter(unix.NFPROTO_INET, 0), attribute(unix.NFTA_TABLE_NAME, text(nftTable)))
		if err := load([][]byte{flush}); !errors.Is(err, unix.EPERM) {
			t.Errorf("the ruleset was deleted: %v", err)
		}
		if err := setAddresses(unix.AF_INET, netip.MustParseAddr("10.0.0.1")); !errors.Is(err, unix.EPERM) {
			t.Errorf("an address was added: %v", err)
		}
		if _, err := openQueue(); !errors.Is(err, unix.EPERM) {
			t.Errorf("the queue was opened: %v", err)
		}
		if _, err := bound(unix.SOCK_DGRAM, netip.MustParseAddrPort("198.51.100.7:7"), true); !errors.Is(err, unix.EPERM) {
			t.Errorf("a transparent socket: %v", err)
		}
		if _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); !errors.Is(err, unix.EPERM) {
			t.Errorf("a raw socket: %v", err)
		}
	})
	if got, err := said(p.connect, "tcp", "198.51.100.7:7"); got != "hello" {
		t.Error(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
