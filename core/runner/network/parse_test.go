//go:build linux

package network

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	open, err := ParseRanges([]string{"10.1.0.0/16", "fd00:1::/32", "127.0.0.1/32"})
	must(t, err)
	for address, want := range map[string][2]bool{ // by default, with what is open
		"8.8.8.8": {true, true}, "2606:4700::1111": {true, true}, "64:ff9b::808:808": {true, true}, "2002:808:808::1": {true, true},
		"0.0.0.0": {}, "0.1.2.3": {}, "10.0.0.1": {}, "10.1.0.1": {false, true}, "100.64.0.1": {}, "100.128.0.1": {true, true},
		"127.0.0.1": {false, true}, "127.0.0.2": {}, "169.254.169.254": {}, "172.15.0.1": {true, true}, "172.16.0.1": {}, "172.32.0.1": {true, true},
		"192.0.0.1": {}, "192.0.1.1": {true, true}, "192.88.99.1": {}, "192.168.1.1": {}, "198.18.0.1": {}, "198.19.255.255": {}, "198.20.0.1": {true, true},
		"224.0.0.1": {}, "255.255.255.255": {}, "168.63.129.16": {},
		"::": {}, "::1": {}, "::ffff:10.1.0.1": {false, true}, "::ffff:127.0.0.2": {}, "::ffff:8.8.8.8": {true, true}, "::8.8.8.8": {},
		"fd00:1::1": {false, true}, "fd00:2::1": {}, "fc00::1": {}, "fe80::1": {}, "fe80::1%eth0": {}, "ff02::1": {}, "fec0::1": {},
		"64:ff9b::a01:1": {false, true}, "64:ff9b::a9fe:a9fe": {}, "2002:a9fe:a9fe::1": {}, "2001:0:1::1": {}, "100::1": {}, "64:ff9b:1::1": {},
	} {
		a := netip.MustParseAddr(address)
		if got := [2]bool{(Ranges{}).Public(a), open.Public(a)}; got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	if (Ranges{}).Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestPrefixesAreChecked(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "10.0.0.1", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104", "x/8"} {
		if _, err := ParseRanges([]string{s}); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestWhatThePacketsBelongTo(t *testing.T) {
	t.Parallel()
	v4 := append([]byte{0x46, 9: 6, 12: 192, 15: 2, 16: 198, 17: 51, 18: 100, 19: 7, 23: 0}, 0x12, 0x34, 0, 80)
	want := flow{6, netip.MustParseAddrPort("192.0.0.2:4660"), netip.MustParseAddrPort("198.51.100.7:80")}
	if got, ok := parseFlow(v4); !ok || got != want {
		t.Error(got, ok)
	}
	v6 := append(make([]byte, 40), 0x12, 0x34, 0, 80)
	v6[0], v6[6], v6[23], v6[39] = 0x60, 17, 1, 2
	want = flow{17, netip.MustParseAddrPort("[::1]:4660"), netip.MustParseAddrPort("[::2]:80")}
	if got, ok := parseFlow(v6); !ok || got != want {
		t.Error(got, ok)
	}
	for _, whole := range [][]byte{v4, v6} {
		for n := range whole {
			if got, ok := parseFlow(whole[:n]); ok {
				t.Errorf("%d bytes are %v", n, got)
			}
		}
	}
	v4[9] = 1 // ICMP
	if got, ok := parseFlow(v4); ok {
		t.Error(got)
	}
}

func FuzzDNS(f *testing.F) {
	answer := append(query("public.test", dnsA), 0xc0, dnsHeader, 0, dnsA, 0, dnsClassIN, 0, 0, 0, 60, 0, 4, 198, 51, 100, 7)
	answer[7] = 1
	f.Add(answer)
	f.Add(query("public.test", dnsA))
	f.Fuzz(func(t *testing.T, m []byte) {
		_, _, end, err := question(m)
		if err != nil {
			return
		}
		if end > len(m) {
			t.Fatalf("a question of %d bytes in %d", end, len(m))
		}
		_, _ = records(m, end)
		if len(answerWith(m, end, dnsRefused)) != end {
			t.Error("the question is not repeated")
		}
	})
}

// What nft itself sends for "queue num 0", so that kernels with nft_queue are served too.
func TestTheQueueOfNftablesIsThatOfNft(t *testing.T) {
	t.Parallel()
	want, err := hex.DecodeString("24000180" + "0a000100" + "71756575" + "65000000" + "14000280" + "06000100" + "00000000" + "06000200" + "00010000")
	must(t, err)
	if got := hold()[0]; !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestNamesAreBoundedAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames()
		a := netip.MustParseAddr("198.51.100.7")
		for i := range 6 {
			n.add("name"+strconv.Itoa(i), a, time.Second)
		}
		n.add("name4", a, time.Second)
		if got := n.of(a); !slices.Equal(got, []string{"name4", "name5", "name3", "name2"}) {
			t.Error(got)
		}
		time.Sleep(minNameTime - time.Second)
		n.add("long", a, 2*minNameTime)
		time.Sleep(minNameTime)
		if got := n.of(a); !slices.Equal(got, []string{"long"}) {
			t.Error(got)
		}
		for i := range 2 * maxAddresses {
			n.add("x", netip.AddrFrom4([4]byte{1, 0, byte(i >> 8), byte(i)}), time.Second)
		}
		if len(n.find) > maxAddresses || len(n.find) < maxAddresses/2 {
			t.Error(len(n.find))
		}
	})
}
