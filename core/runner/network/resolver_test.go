//go:build linux

package network

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// query returns a DNS message that asks for name.
func query(name string, kind uint16) []byte {
	m := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		m = append(append(m, byte(len(label))), label...)
	}
	return append(binary.BigEndian.AppendUint16(append(m, 0), kind), 0, 1)
}

// ask sends a message to the resolver as a program does, and returns the answer.
func (p *place) ask(t *testing.T, network string, m []byte) []byte {
	t.Helper()
	return p.askAt(t, network, dns, m)
}

// dns is where the namespaces of most tests have their resolver.
const dns = networktest.OutsideIPv4 + ":53"

func (p *place) askAt(t *testing.T, network, server string, m []byte) []byte {
	t.Helper()
	c, err := p.connect(network, server)
	must(t, err)
	defer c.Close()
	if network == "tcp" {
		must(t, writeFramed(c, m))
		answer, err := readFramed(c)
		must(t, err)
		return answer
	}
	_, err = c.Write(m)
	must(t, err)
	buffer := make([]byte, maxMessage)
	n, err := c.Read(buffer)
	must(t, err)
	return buffer[:n]
}

func code(m []byte) uint16 { return binary.BigEndian.Uint16(m[2:]) & 15 }

// lookup returns the addresses that the resolver answers.
func (p *place) lookup(t *testing.T, network, name string, kind uint16) (found []string) {
	t.Helper()
	answer := p.ask(t, network, query(name, kind))
	_, _, end, err := question(answer)
	must(t, err)
	all, err := records(answer, end)
	must(t, err)
	for _, r := range all {
		found = append(found, r.address.String())
	}
	if code(answer) != 0 {
		t.Errorf("%s: code %d", name, code(answer))
	}
	return found
}

func TestNamesAreResolved(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	for _, network := range []string{"udp", "tcp"} {
		if got := p.lookup(t, network, "public.test", dnsA); !slices.Equal(got, []string{"198.51.100.7"}) {
			t.Error(network, got)
		}
		if got := p.lookup(t, network, "PUBLIC.test", dnsAAAA); !slices.Equal(got, []string{networktest.OutsideIPv6}) {
			t.Error(network, got)
		}
	}
	if got := code(p.ask(t, "udp", query("nothing.test", dnsA))); got != 3 {
		t.Errorf("a name that does not exist: code %d", got)
	}
}

func TestAnswersDoNotPointIntoClosedRanges(t *testing.T) {
	t.Parallel()
	ranges, err := ParseRanges([]string{"192.168.0.0/16"})
	must(t, err)
	p, open := newPlace(t, Options{}), newPlace(t, Options{Ranges: ranges})
	for _, name := range []string{"internal.test", "mixed.test", "host.test"} {
		if got := p.lookup(t, "udp", name, dnsA); got != nil {
			t.Error(name, got)
		}
	}
	if got := open.lookup(t, "udp", "internal.test", dnsA); !slices.Equal(got, []string{"192.168.7.7"}) {
		t.Error(got)
	}
}

func TestOnlyQuestionsAreForwarded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	update := query("public.test", dnsA)
	update[2] |= 5 << 3
	if got := code(p.ask(t, "udp", update)); got != dnsNotImplemented {
		t.Errorf("update: code %d", got)
	}
	if got := code(p.ask(t, "tcp", query("test", dnsAXFR))); got != dnsRefused {
		t.Errorf("transfer of a zone: code %d", got)
	}
	if got := code(p.ask(t, "udp", query("public.test", dnsA)[:20])); got != 1 {
		t.Errorf("half a question: code %d", got)
	}
}

func TestTheNextServerIsAskedWhereOneDoesNotAnswer(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/resolv.conf"
	must(t, os.WriteFile(file, []byte("# comment\nsearch example.test\nnameserver "+networktest.OutsideIPv4+"\n"), 0o600))
	p := newPlace(t, Options{ResolvConf: file})
	must(t, os.WriteFile(file, []byte("nameserver "+networktest.HostIPv4+"\nnameserver "+networktest.OutsideIPv4+"\n"), 0o600)) // the host itself has none
	if got := p.lookup(t, "udp", "public.test", dnsA); len(got) != 1 {
		t.Error(got)
	}
	must(t, os.WriteFile(file, []byte("nameserver "+networktest.HostIPv4+"\n"), 0o600))
	for _, network := range []string{"udp", "tcp"} {
		if got := code(p.ask(t, network, query("public.test", dnsA))); got != dnsServerFailure {
			t.Errorf("no server: code %d", got)
		}
	}
}

func TestServersAreThoseOfTheHost(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/resolv.conf"
	for content, want := range map[string][]string{
		"nameserver 127.0.0.53\noptions edns0\n":                                                        {"127.0.0.53:53"},
		"nameserver ::1\nnameserver fe80::1%eth0\nnameserver x\n":                                       {"[::1]:53", "[fe80::1%eth0]:53"},
		"nameserver 1.1.1.1\nnameserver 1.1.1.2\n nameserver 1.1.1.3 # a comment\nnameserver 1.1.1.4\n": {"1.1.1.1:53", "1.1.1.2:53", "1.1.1.3:53"},
		"": {"127.0.0.1:53"},
	} {
		must(t, os.WriteFile(file, []byte(content), 0o600))
		var got []string
		for _, s := range servers(file) {
			got = append(got, s.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
	if got := servers(file + "x"); len(got) != 1 || got[0].String() != "127.0.0.1:53" {
		t.Error(got)
	}
}

// The host's own server may be at loopback, where a program reaches only its own namespace.
func TestDNSIsAnsweredWhereTheResolvConfSaysSo(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/resolv.conf"
	must(t, os.WriteFile(file, []byte("nameserver 127.0.0.53\nnameserver 10.1.2.3\nnameserver fe80::1%outside\n"), 0o600))
	p := newPlace(t, Options{ResolvConf: file})
	must(t, os.WriteFile(file, []byte("nameserver "+networktest.OutsideIPv4+"\n"), 0o600))
	for _, server := range []string{"127.0.0.53", "10.1.2.3"} {
		for _, network := range []string{"udp", "tcp"} {
			answer := p.askAt(t, network, server+":53", query("public.test", dnsA))
			if code(answer) != 0 || answer[7] != 1 {
				t.Errorf("%s over %s: %x", server, network, answer)
			}
		}
	}
	if _, err := p.connect("tcp", "10.1.2.3:7"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("another port of the server's address: %v", err)
	}
}

func TestConnectionsToTheResolverAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, Options{})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range maxResolverConnections {
		c, err := p.connect("tcp", dns)
		must(t, err)
		open = append(open, c)
		must(t, writeFramed(c, query("public.test", dnsA)))
		_, err = readFramed(c)
		must(t, err)
	}
	c, err := p.connect("tcp", dns)
	must(t, err)
	open = append(open, c)
	if _, err := readFramed(c); err == nil {
		t.Error("a connection beyond the bound has an answer")
	}
}
