package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// order is the byte order of netlink headers. Values of netfilter are big-endian.
var order = binary.NativeEndian

// attribute returns a netlink attribute: its length, its kind and its value, padded to 4 bytes.
func attribute(kind uint16, value ...[]byte) []byte {
	v := slices.Concat(value...)
	b := order.AppendUint16(make([]byte, 0, 8+len(v)), uint16(4+len(v)))
	b = append(order.AppendUint16(b, kind), v...)
	return append(b, make([]byte, -len(b)&3)...)
}

// nested returns an attribute whose value is attributes.
func nested(kind uint16, attributes ...[]byte) []byte {
	return attribute(kind|unix.NLA_F_NESTED, attributes...)
}

func text(s string) []byte     { return append([]byte(s), 0) }
func bigUint16(v int) []byte   { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func bigUint32(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

// attributes returns the values of the attributes in b by their kind.
func attributes(b []byte) map[uint16][]byte {
	found := map[uint16][]byte{}
	for len(b) >= 4 {
		n := int(order.Uint16(b))
		if n < 4 || n > len(b) {
			break
		}
		found[order.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = b[4:n]
		b = b[min((n+3)&^3, len(b)):]
	}
	return found
}

// message returns a netlink message. Its sequence number is 1 unless flags ask for no answer.
func message(kind, flags uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	b := order.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = order.AppendUint16(b, kind)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = order.AppendUint32(b, uint32(flags&unix.NLM_F_ACK/unix.NLM_F_ACK))
	b = order.AppendUint32(b, 0)
	return append(b, body...)
}

// netfilter returns the header that follows the one of netlink in messages to netfilter.
func netfilter(family byte, resource int) []byte {
	return append([]byte{family, unix.NFNETLINK_V0}, bigUint16(resource)...)
}

// netlinkSocket opens a socket of the calling thread's network namespace.
func netlinkSocket(protocol int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("netlink: %w", err)
	}
	return fd, nil
}

// request sends messages to the kernel and waits for as many answers as there are. It returns the body of the last answer that
// is not an acknowledgement, and the first error.
func request(fd, answers int, messages ...[]byte) (body []byte, err error) {
	if err := unix.Sendto(fd, slices.Concat(messages...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	buffer := make([]byte, 64<<10)
	for answers > 0 {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("netlink: %w", err)
		}
		got, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, fmt.Errorf("netlink: %w", err)
		}
		for _, m := range got {
			answers--
			if m.Header.Type != unix.NLMSG_ERROR {
				body = slices.Clone(m.Data)
				continue
			}
			if code := int32(order.Uint32(m.Data)); code != 0 {
				return nil, syscall.Errno(-code)
			}
		}
	}
	return body, nil
}
