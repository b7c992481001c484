//go:build linux

package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
)

func TestFirst(t *testing.T) {
	p := newPlace(t, Options{Policy: func(_ context.Context, c Connection) error { fmt.Println(c); return nil }})
	for _, a := range []string{"198.51.100.7:7", "[2001:db8:5::9]:7", "198.51.100.7:9", "192.168.7.7:7", "127.0.0.1:8080", hostIPv4 + ":8080", "10.99.0.1:8080", "[fd00::1]:7"} {
		h, herr := net.Dial("tcp", a)
		if herr == nil {
			h.Close()
		}
		c, err := p.connect("tcp", a)
		fmt.Println(a, "host:", herr, "inside:", err)
		if err != nil {
			continue
		}
		fmt.Fprintf(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(c)
		fmt.Println(string(b), err)
		c.Close()
	}
}
