//go:build linux

package network

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// BenchmarkDownload downloads the same from the outside, in turns from the host itself and from a namespace with a Network.
//
//	go test -run '^$' -bench . ./runner/network
func BenchmarkDownload(b *testing.B) {
	p := newPlace(b, Options{})
	var direct, inside time.Duration
	for b.Loop() {
		direct += download(b, net.Dial)
		inside += download(b, p.connect)
	}
	mb := float64(b.N) * downloadBytes / (1 << 20)
	b.ReportMetric(mb/direct.Seconds(), "host-MiB/s")
	b.ReportMetric(mb/inside.Seconds(), "inside-MiB/s")
	b.ReportMetric(direct.Seconds()/inside.Seconds(), "ratio")
}

// BenchmarkOpen makes and ends the way out of a namespace. The namespace is there.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		fd := newNamespace(b)
		b.StartTimer()
		n, err := Open(int(fd.Fd()), Options{})
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
	}
}

func BenchmarkConnectHost(b *testing.B) {
	connects(b, func(address string) (net.Conn, error) { return net.Dial("tcp", address) })
}

func BenchmarkConnectInside(b *testing.B) {
	p := newPlace(b, Options{})
	connects(b, func(address string) (net.Conn, error) { return p.connect("tcp", address) })
}

const downloadBytes = 200 << 20

func download(b *testing.B, dial func(network, address string) (net.Conn, error)) time.Duration {
	start := time.Now()
	c, err := dial("tcp", fmt.Sprintf("198.51.100.7:%d", networktest.BulkPort))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "%d\n", downloadBytes)
	if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10)); n != downloadBytes || err != nil {
		b.Fatal(n, err)
	}
	return time.Since(start)
}

func connects(b *testing.B, dial func(string) (net.Conn, error)) {
	reply := make([]byte, 2)
	for b.Loop() {
		c, err := dial(fmt.Sprintf("198.51.100.7:%d", networktest.EchoPort))
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprint(c, "hi")
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
