package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Constants of the queue that x/sys does not have.
const (
	nfqnlPacket, nfqnlVerdict, nfqnlConfig                = 0, 1, 2
	nfqaCfgCommand, nfqaCfgParameters, nfqaCfgQueueLength = 1, 2, 3
	nfqaPacketHeader, nfqaVerdictHeader, nfqaMark         = 1, 2, 3
	nfqaPayload                                           = 10
	commandBind, copyPacket                               = 1, 2
)

const (
	// copied is how much of a packet the queue shows: an IP header and the ports behind it.
	copied = 128
	// queueLength is how many packets the kernel holds. It drops what comes then.
	queueLength = 1024
)

// flow is a connection or an exchange of datagrams as the program sees it.
type flow struct {
	protocol byte // unix.IPPROTO_TCP or IPPROTO_UDP
	source   netip.AddrPort
	target   netip.AddrPort
}

// openQueue makes the kernel send the held packets of the calling thread's network namespace to the file.
func openQueue() (*os.File, error) {
	fd, err := netlinkSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	parameters := append(binary.BigEndian.AppendUint32(nil, copied), copyPacket)
	for _, setting := range [][]byte{
		attribute(nfqaCfgCommand, []byte{commandBind, 0, 0, 0}),
		attribute(nfqaCfgParameters, parameters),
		attribute(nfqaCfgQueueLength, bigUint32(queueLength)),
	} {
		if _, err = request(fd, 1, queueMessage(nfqnlConfig, unix.NLM_F_ACK, setting)); err != nil {
			break
		}
	}
	if err == nil {
		// A packet for which there is no room is dropped. The program sends it again.
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("nfnetlink_queue: %w", err)
	}
	return os.NewFile(uintptr(fd), "queue"), nil
}

func queueMessage(kind, flags uint16, attributes ...[]byte) []byte {
	return message(unix.NFNL_SUBSYS_QUEUE<<8|kind, flags, append([][]byte{netfilter(unix.AF_UNSPEC, 0)}, attributes...)...)
}

// readQueue calls f for every held packet until the queue is closed. A packet that cannot be understood is dropped.
func (n *Network) readQueue(f func(id uint32, of flow)) {
	buffer := make([]byte, 64<<10)
	const headers = unix.NLMSG_HDRLEN + 4
	for {
		read, err := n.sockets.queue.Read(buffer)
		if err != nil {
			return // closed
		}
		if read < headers {
			continue
		}
		fields := attributes(buffer[headers:read])
		header := fields[nfqaPacketHeader]
		if len(header) < 4 {
			continue
		}
		id := binary.BigEndian.Uint32(header)
		if of, ok := parseFlow(fields[nfqaPayload]); ok {
			f(id, of)
		} else {
			n.verdict(id, nfDrop, 0)
		}
	}
}

// verdict decides about a held packet. The ruleset answers an accepted packet that has a mark.
func (n *Network) verdict(id uint32, what, mark uint32) {
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, what), id)
	body := [][]byte{attribute(nfqaVerdictHeader, header)}
	if mark != 0 {
		body = append(body, attribute(nfqaMark, binary.BigEndian.AppendUint32(nil, mark)))
	}
	_, _ = n.sockets.queue.Write(queueMessage(nfqnlVerdict, 0, body...)) // without a queue there is no packet either
}

// parseFlow returns what a packet belongs to.
func parseFlow(packet []byte) (of flow, ok bool) {
	if len(packet) < 20 {
		return flow{}, false
	}
	var ports []byte
	var source, target netip.Addr
	switch packet[0] >> 4 {
	case 4:
		length := int(packet[0]&15) * 4
		if length < 20 || len(packet) < length+4 {
			return flow{}, false
		}
		of.protocol, ports = packet[9], packet[length:]
		source, target = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
	case 6:
		const length = 40
		if len(packet) < length+4 {
			return flow{}, false
		}
		of.protocol, ports = packet[6], packet[length:]
		source, target = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
	default:
		return flow{}, false
	}
	of.source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(ports))
	of.target = netip.AddrPortFrom(target, binary.BigEndian.Uint16(ports[2:]))
	return of, of.protocol == unix.IPPROTO_TCP || of.protocol == unix.IPPROTO_UDP
}
