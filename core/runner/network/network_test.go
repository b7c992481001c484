//go:build linux

package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// asked notes what a Policy was asked.
type asked struct {
	mu  sync.Mutex
	all []string
	// refuse names a name that is refused.
	refuse string
}

func (a *asked) policy(_ context.Context, c Connection) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, fmt.Sprint(c.Protocol, " ", c.Address, " ", c.Names))
	if a.refuse != "" && slices.Contains(c.Names, a.refuse) {
		return errors.New("not on the list")
	}
	return nil
}

func (a *asked) check(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.all, want) {
		t.Errorf("asked %q, want %q", a.all, want)
	}
}

func TestThePolicyIsAskedOncePerConnectionWithTheName(t *testing.T) {
	t.Parallel()
	var a asked
	p := newPlace(t, Options{Policy: a.policy})
	if got := p.lookup(t, "udp", "public.test", dnsA); !slices.Equal(got, []string{"198.51.100.7"}) {
		t.Fatal(got)
	}
	for _, network := range []string{"tcp", "udp"} {
		c, err := p.connect(network, "198.51.100.7:7")
		must(t, err)
		defer c.Close()
		for range 20 {
			fmt.Fprint(c, "x")
			_, err := io.ReadFull(c, make([]byte, 1))
			must(t, err)
		}
	}
	_, _ = p.connect("tcp", "10.1.2.3:7") // is refused before the policy is asked
	a.check(t, "tcp 198.51.100.7:7 [public.test]", "udp 198.51.100.7:7 [public.test]")
}

func TestAPolicyRefusesAConnection(t *testing.T) {
	t.Parallel()
	a := asked{refuse: "public.test"}
	p := newPlace(t, Options{Policy: a.policy})
	if got, err := said(p.connect, "tcp", "198.51.100.7:7"); got != "hello" {
		t.Fatal(err)
	}
	p.lookup(t, "udp", "public.test", dnsA)
	if _, err := p.connect("tcp", "198.51.100.7:7"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Error(err)
	}
	a.check(t, "tcp 198.51.100.7:7 []", "tcp 198.51.100.7:7 [public.test]")
}

func TestARepetitionOfTheFirstPacketIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	var a asked
	entered, release := make(chan struct{}), make(chan struct{})
	p := newPlace(t, Options{Policy: func(ctx context.Context, c Connection) error {
		entered <- struct{}{}
		<-release
		return a.policy(ctx, c)
	}})
	failed := make(chan error)
	go func() {
		got, err := said(p.connect, "tcp", "198.51.100.7:7")
		if got != "hello" {
			failed <- err
		}
		close(failed)
	}()
	<-entered
	for of := range p.links {
		for range 3 {
			p.admit(1<<30, of) // the kernel knows no such packet
		}
	}
	close(release)
	must(t, <-failed)
	a.check(t, "tcp 198.51.100.7:7 []")
}

func TestHalfClosePassesThrough(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	c, err := p.connect("tcp", fmt.Sprintf("198.51.100.7:%d", networktest.CountPort))
	must(t, err)
	defer c.Close()
	const sent = 3 << 20
	_, err = c.Write(make([]byte, sent))
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	if string(got) != fmt.Sprint(sent, " <nil>") || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAResetPassesThrough(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	c, err := p.connect("tcp", fmt.Sprintf("198.51.100.7:%d", networktest.ResetPort))
	must(t, err)
	defer c.Close()
	fmt.Fprint(c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
}

func TestBytesArriveAsTheyWereSent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	c, err := p.connect("tcp", fmt.Sprintf("198.51.100.7:%d", networktest.EchoPort))
	must(t, err)
	defer c.Close()
	sent := make([]byte, 5<<20)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); !slices.Equal(got, sent) || err != nil {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

func TestDatagramsKeepTheirLimits(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	c, err := p.connect("udp", "198.51.100.7:7")
	must(t, err)
	defer c.Close()
	for _, n := range []int{0, 1, 1000, 9000} {
		_, err := c.Write(make([]byte, n))
		must(t, err)
		if got, err := c.Read(make([]byte, 64<<10)); got != n || err != nil {
			t.Errorf("of %d bytes %d came back, %v", n, got, err)
		}
	}
}

// wait waits until no link is left.
func (n *Network) wait() {
	for {
		n.mu.Lock()
		left := len(n.links)
		n.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

func TestManyShortConnectionsLeaveNothing(t *testing.T) {
	before := descriptors(t)
	p := newPlace(t, Options{})
	for i := range 1000 {
		if got, err := said(p.connect, "tcp", "198.51.100.7:7"); got != "hello" {
			t.Fatal(i, err)
		}
	}
	p.wait()
	p.Close()
	const ofPlace = 1 // the namespace
	// The servers of the test are in this process, and may close their ends later.
	awaittest.UntilNil(t, "the end of all connections", func() error {
		if after := descriptors(t); after > before+ofPlace {
			return fmt.Errorf("%d descriptors before, %d after", before, after)
		}
		return nil
	})
	if len(p.counts) > 0 && p.counts[unix.IPPROTO_TCP] != 0 {
		t.Error(p.counts)
	}
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	tcp, err := p.connect("tcp", "198.51.100.7:7")
	must(t, err)
	defer tcp.Close()
	udp, err := p.connect("udp", "198.51.100.7:7")
	must(t, err)
	defer udp.Close()
	fmt.Fprint(udp, "x")
	_, err = io.ReadFull(udp, make([]byte, 1))
	must(t, err)
	p.Close()
	p.Close()
	if _, err := tcp.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	if len(p.links) != 0 {
		t.Error(p.links)
	}
}

func TestResetEndsConnectionsAndForgetsNames(t *testing.T) {
	t.Parallel()
	var a asked
	p := newPlace(t, Options{Policy: a.policy})
	p.lookup(t, "udp", "public.test", dnsA)
	c, err := p.connect("tcp", "198.51.100.7:7")
	must(t, err)
	defer c.Close()
	p.Reset()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	if got, err := said(p.connect, "tcp", "198.51.100.7:7"); got != "hello" {
		t.Error(err)
	}
	a.check(t, "tcp 198.51.100.7:7 [public.test]", "tcp 198.51.100.7:7 []")
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{MaxConnections: 8, MaxFlows: 4})
	for _, c := range []struct {
		network string
		bound   int
	}{{"tcp", 8}, {"udp", 4}} {
		var open []net.Conn
		ask := func() error {
			conn, err := p.connect(c.network, "198.51.100.7:7")
			if err != nil {
				return err
			}
			open = append(open, conn)
			fmt.Fprint(conn, "x")
			_, err = io.ReadFull(conn, make([]byte, 1))
			return err
		}
		for i := range c.bound {
			if err := ask(); err != nil {
				t.Errorf("%s %d: %v", c.network, i, err)
			}
		}
		for range 50 {
			if err := ask(); !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("%s beyond the bound: %v", c.network, err)
			}
		}
		for _, conn := range open {
			conn.Close()
		}
		p.Reset()
		p.wait()
		if err := ask(); err != nil {
			t.Errorf("%s after the others have ended: %v", c.network, err)
		}
		open[len(open)-1].Close()
	}
}

func TestProbeWorks(t *testing.T) {
	t.Parallel()
	must(t, Probe())
}

func TestOpenInSomethingElseFails(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	must(t, err)
	defer f.Close()
	if _, err := Open(int(f.Fd()), Options{}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}
