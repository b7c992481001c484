package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Addresses inside of a namespace. 192.0.0.0/29 is meant for such ends of a translation (RFC 7335), and no program means another
// machine by it.
var (
	insideIPv4 = netip.MustParseAddr("192.0.0.2")
	insideIPv6 = netip.MustParseAddr("fd00:5059:4578::2")
	// relayIPv4 and relayIPv6 have the sockets that accept redirected connections.
	relayIPv4 = netip.MustParseAddr("192.0.0.1")
	relayIPv6 = netip.MustParseAddr("fd00:5059:4578::1")
	// ownPrefixes are the addresses that are not redirected.
	ownPrefixes = []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fd00:5059:4578::/64"),
	}
)

// relayPort is where redirected connections are accepted. Programs cannot bind a port below 1024.
const relayPort = 1

// Marks that a verdict gives to a packet. The ruleset answers it accordingly.
const (
	markReset      = 1 + iota // connect: ECONNREFUSED
	markNoHost                // EHOSTUNREACH
	markNoRoute               // ENETUNREACH
	markProhibited            // EHOSTUNREACH for IPv4, EACCES for IPv6
)

// Constants that x/sys does not have.
const (
	nftaTproxyFamily, nftaTproxyAddress, nftaTproxyPort = 1, 2, 3
	nftaSocketKey, nftaSocketRegister                   = 1, 2
	nftSocketTransparent                                = 0
	nftaQueueNumber, nftaQueueTotal                     = 1, 2
	nftaTargetName, nftaTargetRevision, nftaTargetInfo  = 1, 2, 3
	nfDrop, nfAccept                                    = 0, 1
	nftTable                                            = "python-executor"
)

// Numbers of the registers that the rules use, 16 bytes each.
const register1, register2 = unix.NFT_REG_1, unix.NFT_REG_2

func expression(name string, attributes ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, attribute(unix.NFTA_EXPR_NAME, text(name)), nested(unix.NFTA_EXPR_DATA, attributes...))
}

func compare(value ...byte) []byte {
	return expression("cmp", attribute(unix.NFTA_CMP_SREG, bigUint32(register1)), attribute(unix.NFTA_CMP_OP, bigUint32(unix.NFT_CMP_EQ)),
		nested(unix.NFTA_CMP_DATA, attribute(unix.NFTA_DATA_VALUE, value)))
}

// meta matches packets by a property that is not in them.
func meta(key int32, value ...byte) []byte {
	load := expression("meta", attribute(unix.NFTA_META_KEY, bigUint32(key)), attribute(unix.NFTA_META_DREG, bigUint32(register1)))
	return slices.Concat(load, compare(value...))
}

func payload(base, offset, length int32) []byte {
	return expression("payload", attribute(unix.NFTA_PAYLOAD_DREG, bigUint32(register1)), attribute(unix.NFTA_PAYLOAD_BASE, bigUint32(base)),
		attribute(unix.NFTA_PAYLOAD_OFFSET, bigUint32(offset)), attribute(unix.NFTA_PAYLOAD_LEN, bigUint32(length)))
}

// destination matches packets to p, whose length must be whole bytes.
func destination(p netip.Prefix) []byte {
	family, offset := byte(unix.NFPROTO_IPV4), int32(16)
	if p.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	n := p.Bits() / 8
	return slices.Concat(meta(unix.NFT_META_NFPROTO, family), payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, int32(n)),
		compare(p.Addr().AsSlice()[:n]...))
}

// toPort matches packets of TCP and UDP to a port.
func toPort(port int) []byte {
	return slices.Concat(payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), compare(bigUint16(port)...))
}

// firstOfTCP matches a segment with SYN and without ACK.
func firstOfTCP() []byte {
	const flagsOffset, syn, ack = 13, 0x02, 0x10
	mask := expression("bitwise", attribute(unix.NFTA_BITWISE_SREG, bigUint32(register1)), attribute(unix.NFTA_BITWISE_DREG, bigUint32(register1)),
		attribute(unix.NFTA_BITWISE_LEN, bigUint32(1)), nested(unix.NFTA_BITWISE_MASK, attribute(unix.NFTA_DATA_VALUE, []byte{syn | ack})),
		nested(unix.NFTA_BITWISE_XOR, attribute(unix.NFTA_DATA_VALUE, []byte{0})))
	return slices.Concat(meta(unix.NFT_META_L4PROTO, unix.IPPROTO_TCP), payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, flagsOffset, 1), mask, compare(syn))
}

// ofFlow matches datagrams for which there is a socket of a flow.
func ofFlow() []byte {
	load := expression("socket", attribute(nftaSocketKey, bigUint32(nftSocketTransparent)), attribute(nftaSocketRegister, bigUint32(register1)))
	return slices.Concat(load, compare(1))
}

func verdict(code int32, chain ...[]byte) []byte {
	return expression("immediate", attribute(unix.NFTA_IMMEDIATE_DREG, bigUint32(unix.NFT_REG_VERDICT)),
		nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT, append(chain, attribute(unix.NFTA_VERDICT_CODE, bigUint32(code)))...)))
}

func constant(register int32, value []byte) []byte {
	return expression("immediate", attribute(unix.NFTA_IMMEDIATE_DREG, bigUint32(register)),
		nested(unix.NFTA_IMMEDIATE_DATA, attribute(unix.NFTA_DATA_VALUE, value)))
}

// toSocket hands a packet to the socket that it belongs to, or else to the one that listens at address.
func toSocket(protocol byte, address netip.Addr) []byte {
	family := byte(unix.NFPROTO_IPV4)
	if address.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return slices.Concat(meta(unix.NFT_META_NFPROTO, family), meta(unix.NFT_META_L4PROTO, protocol),
		constant(register1, address.AsSlice()), constant(register2, bigUint16(relayPort)),
		expression("tproxy", attribute(nftaTproxyFamily, bigUint32(int32(family))),
			attribute(nftaTproxyAddress, bigUint32(register1)), attribute(nftaTproxyPort, bigUint32(register2))), verdict(nfAccept))
}

func reject(mark byte, how, code int32) []byte {
	return slices.Concat(meta(unix.NFT_META_MARK, order.AppendUint32(nil, uint32(mark))...),
		expression("reject", attribute(unix.NFTA_REJECT_TYPE, bigUint32(how)), attribute(unix.NFTA_REJECT_ICMP_CODE, []byte{byte(code)})))
}

// hold returns the expressions that give a packet to the queue with number 0: that of nftables, and that of iptables, which some
// kernels have instead.
func hold() [2][]byte {
	return [2][]byte{
		expression("queue", attribute(nftaQueueNumber, bigUint16(0)), attribute(nftaQueueTotal, bigUint16(1))),
		expression("target", attribute(nftaTargetName, text("NFQUEUE")), attribute(nftaTargetRevision, bigUint32(0)),
			attribute(nftaTargetInfo, make([]byte, 4))),
	}
}

// chain makes a chain. priority is for chains that packets enter by themselves, before they are routed.
func chain(name string, priority, policy int32, base bool) []byte {
	body := [][]byte{netfilter(unix.NFPROTO_INET, 0), attribute(unix.NFTA_CHAIN_TABLE, text(nftTable)), attribute(unix.NFTA_CHAIN_NAME, text(name))}
	if base {
		body = append(body, nested(unix.NFTA_CHAIN_HOOK, attribute(unix.NFTA_HOOK_HOOKNUM, bigUint32(unix.NF_INET_PRE_ROUTING)),
			attribute(unix.NFTA_HOOK_PRIORITY, bigUint32(priority))),
			attribute(unix.NFTA_CHAIN_TYPE, text("filter")), attribute(unix.NFTA_CHAIN_POLICY, bigUint32(policy)))
	}
	return nftMessage(unix.NFT_MSG_NEWCHAIN, body...)
}

func rule(chain string, expressions ...[]byte) []byte {
	return nftMessage(unix.NFT_MSG_NEWRULE, netfilter(unix.NFPROTO_INET, 0), attribute(unix.NFTA_RULE_TABLE, text(nftTable)),
		attribute(unix.NFTA_RULE_CHAIN, text(chain)), nested(unix.NFTA_RULE_EXPRESSIONS, expressions...))
}

func nftMessage(kind uint16, parts ...[]byte) []byte {
	return message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_APPEND, parts...)
}

// ruleset returns the messages that redirect what programs send, but not to the resolvers, which are sockets inside:
//
//	ask     holds the first packet of a connection or flow until queue gives a verdict
//	refuse  answers packets with a mark
//	relay   hands the other packets to our sockets; what belongs to none is dropped
func ruleset(hold []byte, resolvers []netip.AddrPort) [][]byte {
	jumpOwn := verdict(unix.NFT_JUMP, attribute(unix.NFTA_VERDICT_CHAIN, text("own")))
	udp := meta(unix.NFT_META_L4PROTO, unix.IPPROTO_UDP)
	messages := [][]byte{
		nftMessage(unix.NFT_MSG_NEWTABLE, netfilter(unix.NFPROTO_INET, 0), attribute(unix.NFTA_TABLE_NAME, text(nftTable))),
		chain("own", 0, 0, false), chain("ask", -160, nfAccept, true), chain("refuse", -155, nfAccept, true), chain("relay", -150, nfDrop, true),
	}
	for _, p := range ownPrefixes {
		messages = append(messages, rule("own", destination(p), verdict(nfAccept)))
	}
	for _, r := range resolvers {
		messages = append(messages, rule("own", destination(netip.PrefixFrom(r.Addr(), r.Addr().BitLen())), toPort(int(r.Port())), verdict(nfAccept)))
	}
	messages = append(messages,
		rule("ask", jumpOwn),
		rule("ask", firstOfTCP(), hold),
		rule("ask", udp, ofFlow(), verdict(nfAccept)),
		rule("ask", udp, hold),
		rule("refuse", reject(markReset, unix.NFT_REJECT_TCP_RST, 0)),
		rule("refuse", reject(markNoHost, unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_HOST_UNREACH)),
		rule("refuse", reject(markNoRoute, unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_NO_ROUTE)),
		rule("refuse", reject(markProhibited, unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)),
		rule("relay", jumpOwn))
	for _, address := range []netip.Addr{relayIPv4, relayIPv6} {
		messages = append(messages, rule("relay", toSocket(unix.IPPROTO_TCP, address)), rule("relay", toSocket(unix.IPPROTO_UDP, address)))
	}
	return messages
}

// loadRuleset loads the ruleset in the calling thread's network namespace.
func loadRuleset(resolvers []netip.AddrPort) error {
	var failed []error
	for _, hold := range hold() {
		err := load(ruleset(hold, resolvers))
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("nftables (nft_queue, nft_tproxy, nft_socket, nft_reject_inet): %w", errors.Join(failed...))
}

// load loads all messages or none.
func load(messages [][]byte) error {
	fd, err := netlinkSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // what it has to say was read
	begin := message(unix.NFNL_MSG_BATCH_BEGIN, 0, netfilter(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	end := message(unix.NFNL_MSG_BATCH_END, 0, netfilter(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	_, err = request(fd, len(messages), slices.Concat([][]byte{begin}, messages, [][]byte{end})...)
	return err
}
