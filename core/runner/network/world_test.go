//go:build linux

package network

import (
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// The tests run in a world of network namespaces. They run once as root, and once as an ordinary user in a user namespace who has
// no rights in the host's network namespace.
func TestMain(m *testing.M) {
	networktest.Main()
	if networktest.Role() == "" {
		os.Exit(max(networktest.Run(networktest.AsRoot, os.Args[1:], os.Stdout), networktest.Run(networktest.AsOwner, os.Args[1:], os.Stdout)))
	}
	leaktest.Main(m)
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
		if err := os.WriteFile(o.ResolvConf, []byte("nameserver "+networktest.OutsideIPv4+"\n"), 0o600); err != nil {
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
