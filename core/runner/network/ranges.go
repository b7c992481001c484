package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Ranges says which addresses programs may reach. The zero value allows public addresses only.
type Ranges struct {
	open []netip.Prefix
}

// ParseRanges returns Ranges in which prefixes such as 10.1.0.0/16 are open besides the public addresses.
func ParseRanges(open []string) (Ranges, error) {
	var r Ranges
	for _, s := range open {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Masked() != p || p.Addr().Is4In6() {
			return Ranges{}, fmt.Errorf("must be a prefix with its first address, like 10.1.0.0/16 (got %q)", s)
		}
		r.open = append(r.open, p)
	}
	return r, nil
}

// closed are the prefixes that are not public, and addresses of clouds that their machines trust.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's agent; the metadata services of the other clouds have addresses in the prefixes
	"::/16",            // unspecified, loopback, addresses that contain one of IPv4
	"64:ff9b:1::/48",   // translation inside of a site
	"100::/64",         // discard
	"2001::/32",        // Teredo
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

// Closed returns the prefixes that programs must not reach unless a prefix opens them: those that are not public, and addresses of clouds
// that their machines trust.
func Closed() []netip.Prefix { return slices.Clone(closed) }

// nat64 and sixToFour contain an address of IPv4, in the last bytes and after 2 bytes.
var nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, s := range all {
		parsed = append(parsed, netip.MustParsePrefix(s))
	}
	return parsed
}

// Public reports whether a is open, or in no range that is closed by default.
func (r Ranges) Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if contains(r.open, a) {
		return true
	}
	if inner := translated(a); inner != a {
		return r.Public(inner)
	}
	return a.IsValid() && !contains(closed, a)
}

// translated returns the address of IPv4 that a NAT64 or 6to4 address leads to, and every other address as it is.
func translated(a netip.Addr) netip.Addr {
	raw := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(raw[12:]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(raw[2:]))
	}
	return a
}

// opensExactly reports whether a prefix of a's full length is open. An address of the host itself needs it.
func (r Ranges) opensExactly(a netip.Addr) bool {
	return slices.Contains(r.open, netip.PrefixFrom(a, a.BitLen()))
}

func contains(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}
