package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// maxQueries bounds the questions over UDP that wait for an answer, for each server of the host. Others are dropped; programs ask again.
	maxQueries = 128
	// maxResolverConnections bounds connections over TCP, for each server of the host.
	maxResolverConnections = 16
	// serverTime bounds how long one DNS server of the host may take. queryTime bounds the whole.
	serverTime, queryTime = 3 * time.Second, 10 * time.Second
	// maxServers is how many DNS servers of the host are asked, as in the C library.
	maxServers = 3
)

// servers returns the host's DNS servers. Without a file, or without any in it, the C library asks this host.
func servers(file string) (found []netip.AddrPort) {
	raw, _ := os.ReadFile(file)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" || len(found) == maxServers {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			found = append(found, netip.AddrPortFrom(a.Unmap(), dnsPort))
		}
	}
	if len(found) == 0 {
		found = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort)}
	}
	return found
}

const dnsPort = 53

// resolvers returns the addresses of servers that a namespace can have. It has no interface for an address with a zone.
func resolvers(file string) (found []netip.AddrPort) {
	for _, s := range servers(file) {
		if s.Addr().Zone() == "" && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

// resolveUDP answers questions until the Network is closed.
func (n *Network) resolveUDP(conn *net.UDPConn) {
	free := make(chan struct{}, maxQueries)
	buffer := make([]byte, maxMessage)
	for {
		length, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if n.ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			continue
		}
		query := bytes.Clone(buffer[:length])
		n.wg.Go(func() {
			defer func() { <-free }()
			if answer := n.resolve(query, "udp"); answer != nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from) // the program may have ended
			}
		})
	}
}

// maxMessage is the longest DNS message.
const maxMessage = 64<<10 - 1

// resolveTCP answers questions until the Network is closed.
func (n *Network) resolveTCP(listener net.Listener) {
	free := make(chan struct{}, maxResolverConnections)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		n.wg.Go(func() {
			defer func() { <-free }()
			defer conn.Close()
			defer context.AfterFunc(n.ctx, func() { _ = conn.Close() })()
			for {
				_ = conn.SetDeadline(time.Now().Add(queryTime))
				query, err := readFramed(conn)
				if err != nil {
					return
				}
				answer := n.resolve(query, "tcp")
				if answer == nil || writeFramed(conn, answer) != nil {
					return
				}
			}
		})
	}
}

// resolve returns the answer to a program's query: that of the host's DNS servers, without addresses that programs must not
// reach. It returns nil for what is no query.
func (n *Network) resolve(query []byte, transport string) []byte {
	if len(query) < dnsHeader || binary.BigEndian.Uint16(query[2:])&dnsResponse != 0 {
		return nil
	}
	if binary.BigEndian.Uint16(query[2:])&dnsOpcode != 0 { // an update or a notification
		return answerWith(query, 0, dnsNotImplemented)
	}
	name, kind, end, err := question(query)
	if err != nil {
		return answerWith(query, 0, 1)
	}
	if kind == dnsAXFR || kind == dnsIXFR { // a whole zone
		return answerWith(query, end, dnsRefused)
	}
	ctx, cancel := context.WithTimeout(n.ctx, queryTime)
	defer cancel()
	for _, server := range servers(n.options.ResolvConf) {
		answer, err := exchange(ctx, transport, server.String(), query)
		if err == nil {
			return n.filter(name, query, end, answer)
		}
	}
	return answerWith(query, end, dnsServerFailure)
}

// filter notes the addresses of an answer. If a program must not reach one of them, it returns an answer without any.
func (n *Network) filter(name string, query []byte, end int, answer []byte) []byte {
	_, _, answerEnd, err := question(answer)
	if err != nil {
		return answerWith(query, end, dnsServerFailure)
	}
	found, err := records(answer, answerEnd)
	if err != nil {
		return answerWith(query, end, dnsServerFailure)
	}
	for _, r := range found {
		if n.permit(r.address) != nil {
			return answerWith(query, end, 0)
		}
	}
	for _, r := range found {
		n.names.add(name, r.address, r.valid)
	}
	return answer
}

// exchange asks one server.
func exchange(ctx context.Context, transport, server string, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, transport, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if transport == "tcp" {
		if err := writeFramed(conn, query); err != nil {
			return nil, err
		}
		answer, err := readFramed(conn)
		return answer, errors.Join(err, checkAnswer(query, answer))
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxMessage)
	for {
		length, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if checkAnswer(query, buffer[:length]) == nil {
			return buffer[:length], nil
		}
	}
}

// checkAnswer returns nil if answer has the number and the question of query.
func checkAnswer(query, answer []byte) error {
	if len(answer) < dnsHeader || !bytes.Equal(answer[:2], query[:2]) || binary.BigEndian.Uint16(answer[2:])&dnsResponse == 0 {
		return errMessage
	}
	asked, kind, _, err := question(query)
	name, answered, _, other := question(answer)
	if err != nil || other != nil || asked != name || kind != answered {
		return errMessage
	}
	return nil
}

func readFramed(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, m)
	return m, err
}

func writeFramed(w io.Writer, m []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}
