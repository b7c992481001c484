package network

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// Fields of a DNS message (RFC 1035).
const (
	dnsHeader                                       = 12
	dnsResponse, dnsOpcode, dnsRecursion            = 0x8000, 0x7800, 0x0100
	dnsServerFailure, dnsNotImplemented, dnsRefused = 2, 4, 5
	dnsA, dnsAAAA, dnsIXFR, dnsAXFR, dnsClassIN     = 1, 28, 251, 252, 1
)

var errMessage = errors.New("not a DNS message")

// question returns the name and the type that a message asks for, and where the question ends.
func question(m []byte) (name string, kind uint16, end int, err error) {
	if len(m) < dnsHeader || binary.BigEndian.Uint16(m[4:]) != 1 {
		return "", 0, 0, errMessage
	}
	var labels []string
	at := dnsHeader
	for {
		if at >= len(m) || m[at] > 63 {
			return "", 0, 0, errMessage
		}
		length := int(m[at])
		at++
		if length == 0 {
			break
		}
		if at+length > len(m) {
			return "", 0, 0, errMessage
		}
		labels = append(labels, string(m[at:at+length]))
		at += length
	}
	if at+4 > len(m) {
		return "", 0, 0, errMessage
	}
	return strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(m[at:]), at + 4, nil
}

// record is an address in an answer.
type record struct {
	address netip.Addr
	valid   time.Duration
}

// records returns the addresses in the answers of a message whose question ends at end.
func records(m []byte, at int) (found []record, err error) {
	for range binary.BigEndian.Uint16(m[6:]) {
		if at, err = skipName(m, at); err != nil || at+10 > len(m) {
			return nil, errMessage
		}
		kind, class := binary.BigEndian.Uint16(m[at:]), binary.BigEndian.Uint16(m[at+2:])
		valid := time.Duration(binary.BigEndian.Uint32(m[at+4:])) * time.Second
		length := int(binary.BigEndian.Uint16(m[at+8:]))
		at += 10
		if at+length > len(m) {
			return nil, errMessage
		}
		if a, ok := netip.AddrFromSlice(m[at : at+length]); ok && class == dnsClassIN && (kind == dnsA && a.Is4() || kind == dnsAAAA && a.Is6()) {
			found = append(found, record{a.Unmap(), valid})
		}
		at += length
	}
	return found, nil
}

// skipName returns where the name at at ends.
func skipName(m []byte, at int) (end int, err error) {
	for at < len(m) {
		switch length := int(m[at]); {
		case length == 0:
			return at + 1, nil
		case length >= 0xc0: // a pointer
			return at + 2, nil
		case length > 63:
			return 0, errMessage
		default:
			at += 1 + length
		}
	}
	return 0, errMessage
}

// answerWith returns the answer to query that has a code and no records. end is where the question ends; 0 leaves it out.
func answerWith(query []byte, end int, code uint16) []byte {
	m := make([]byte, dnsHeader, max(dnsHeader, end))
	copy(m, query[:2])
	const recursionAvailable = 0x0080
	flags := binary.BigEndian.Uint16(query[2:])
	binary.BigEndian.PutUint16(m[2:], dnsResponse|recursionAvailable|flags&(dnsOpcode|dnsRecursion)|code)
	if end > 0 {
		binary.BigEndian.PutUint16(m[4:], 1)
		m = append(m, query[dnsHeader:end]...)
	}
	return m
}
