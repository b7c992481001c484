package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// onThisHost reports whether from, which is connected to the server's address to, is an address of this host.
func onThisHost(to, from *net.TCPAddr) bool {
	if from.IP.IsLoopback() || from.IP.Equal(to.IP) {
		return true
	}
	options := &netlink.RouteGetOptions{OifIndex: zoneIndex(from.Zone)}
	// Unlike the lists of interface addresses, the routing table also has whole local networks.
	if routes, err := netlink.RouteGetWithOptions(from.IP, options); err == nil {
		return slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL })
	}
	addresses, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(from.IP)
	})
}

// zoneIndex returns the index of the interface that a zone names; 0 if it names none.
func zoneIndex(zone string) int {
	if zone == "" {
		return 0
	}
	if device, err := net.InterfaceByName(zone); err == nil {
		return device.Index
	}
	index, _ := strconv.Atoi(zone) // package net writes the index of an interface without a name
	return index
}

// newTable returns the fastest table that works here.
func newTable(log *slog.Logger) table {
	fast, errFast := netlinkTable{}, try(netlinkTable{})
	if errFast == nil {
		return fast
	}
	if err := try(procTable{}); err != nil {
		log.Warn("the owners of connections cannot be determined: clients on this host are refused", "error", errors.Join(errFast, err))
	}
	return procTable{}
}

// try looks up a connection of this process with t, and returns an error if the owner is wrong.
func try(t table) error {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // a probe
	c, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // a probe
	uid, err := t.owner(c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr))
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("a socket of uid %d is shown with uid %d", os.Geteuid(), uid)
	}
	return err
}

// errNoOwner is the error for a socket whose descriptors are all closed.
var errNoOwner = errors.New("the socket has been closed")

// connected reports whether state is that of a socket that was connected and not reset.
func connected(state uint64) bool {
	switch state {
	case netlink.TCP_ESTABLISHED, netlink.TCP_FIN_WAIT1, netlink.TCP_FIN_WAIT2, netlink.TCP_CLOSE_WAIT, netlink.TCP_LAST_ACK, netlink.TCP_CLOSING:
		return true
	}
	return false
}

// netlinkTable asks the kernel for one socket (sock_diag). The library's SocketGet makes the kernel search all sockets, and
// compare only their ports.
type netlinkTable struct{}

// The sizes of inet_diag_sockid, inet_diag_req_v2 and inet_diag_msg in linux/inet_diag.h.
const (
	sizeofSocketID = 48
	sizeofRequest  = 8 + sizeofSocketID
	sizeofSocket   = 4 + sizeofSocketID + 5*4
)

// socketID identifies a socket, as inet_diag_sockid does without the cookie.
type socketID struct {
	local, remote netip.AddrPort
	device        uint32
}

// socketRequest is an inet_diag_req_v2.
type socketRequest struct{ socketID }

// Len implements nl.NetlinkRequestData.
func (socketRequest) Len() int { return sizeofRequest }

// Serialize implements nl.NetlinkRequestData.
func (r socketRequest) Serialize() []byte {
	family := byte(unix.AF_INET)
	if r.local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, 0, sizeofRequest)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, math.MaxUint32) // any state
	b = binary.BigEndian.AppendUint16(b, r.local.Port())
	b = binary.BigEndian.AppendUint16(b, r.remote.Port())
	for _, a := range []netip.Addr{r.local.Addr(), r.remote.Addr()} {
		var padded [16]byte
		copy(padded[:], a.AsSlice())
		b = append(b, padded[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, r.device)
	b = binary.NativeEndian.AppendUint64(b, math.MaxUint64) // any cookie
	return b
}

// addressIn decodes an address of an inet_diag_msg.
func addressIn(raw []byte, family byte) netip.Addr {
	if family == unix.AF_INET {
		raw = raw[:4]
	}
	a, _ := netip.AddrFromSlice(raw)
	return a.Unmap()
}

func (netlinkTable) owner(local, remote *net.TCPAddr) (int, error) {
	want := socketID{local: plain(local.AddrPort()), remote: plain(remote.AddrPort())}
	want.device = uint32(zoneIndex(local.Zone))
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	r.AddData(socketRequest{want})
	answers, err := r.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return 0, fmt.Errorf("look up the socket: %w", err)
	}
	if len(answers) != 1 || len(answers[0]) < sizeofSocket {
		return 0, fmt.Errorf("look up the socket: the kernel gave %d answers", len(answers))
	}
	m := answers[0]
	family, state := m[0], m[1]
	id, rest := m[4:4+sizeofSocketID], m[4+sizeofSocketID:]
	got := socketID{
		local:  netip.AddrPortFrom(addressIn(id[4:20], family), binary.BigEndian.Uint16(id)),
		remote: netip.AddrPortFrom(addressIn(id[20:36], family), binary.BigEndian.Uint16(id[2:])),
		device: want.device,
	}
	// If there is no such connection, the kernel returns a listening socket.
	if got != want || !connected(uint64(state)) {
		return 0, fmt.Errorf("look up the socket: %w", os.ErrNotExist)
	}
	uid, inode := binary.NativeEndian.Uint32(rest[12:]), binary.NativeEndian.Uint32(rest[16:])
	if inode == 0 {
		return 0, errNoOwner
	}
	return int(uid), nil
}

// procTable reads the whole socket tables of the kernel. It is used without sock_diag: in gVisor, and if a module is missing.
type procTable struct{}

func (procTable) owner(local, remote *net.TCPAddr) (int, error) {
	var errs []error
	// An IPv4 connection is in the IPv6 table if the peer's socket is an IPv6 socket.
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err := find(f, local.AddrPort(), remote.AddrPort())
		f.Close()
		if err == nil {
			return uid, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return 0, errors.Join(errs...)
}

// The columns of the tables.
const (
	columnLocal  = 1
	columnRemote = 2
	columnState  = 3
	columnUID    = 7
	columnInode  = 9
)

// find returns the owner of a socket in one of the kernel's tables.
func find(r io.Reader, local, remote netip.AddrPort) (int, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) <= columnInode || parseAddress(columns[columnLocal]) != plain(local) || parseAddress(columns[columnRemote]) != plain(remote) {
			continue
		}
		state, err := strconv.ParseUint(columns[columnState], 16, 8)
		if err != nil || !connected(state) {
			continue
		}
		if columns[columnInode] == "0" {
			return 0, errNoOwner
		}
		return strconv.Atoi(columns[columnUID])
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, os.ErrNotExist
}

// plain returns a in the form of the tables: without a zone, and not as an IPv4-mapped IPv6 address.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// parseAddress parses an address like "0100007F:1F90": words of 32 bits in the byte order of the machine, and a port. It
// returns the zero AddrPort if text is not such an address.
func parseAddress(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(host)%8 != 0 {
		return netip.AddrPort{}
	}
	var raw bytes.Buffer
	for ; host != ""; host = host[8:] {
		word, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}
		}
		raw.Write(binary.NativeEndian.AppendUint32(nil, uint32(word)))
	}
	address, ok := netip.AddrFromSlice(raw.Bytes())
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(n))
}
