// Package network gives the programs in a network namespace a way to the outside, and asks a policy about every connection.
//
// It is not a network of packets: no address is translated, and no packet leaves the namespace. The namespace has only lo, which
// has a route to every address. A ruleset of nftables in the namespace holds the first packet of a TCP connection or of a flow
// of datagrams, and hands it to Network. Network checks the address, asks the Policy, and connects to the address from the
// host's network namespace. Then the held packet goes on to a socket inside that Network has opened, and Network copies between
// the two sockets. If the connection outside fails, the program gets the same error from its own connect.
//
// So a program can reach what Network connects to, and nothing else, whatever packets it sends. Network works in every namespace
// in whose user namespace the process has capabilities, so also for an ordinary user. The programs have no capabilities, and
// cannot change the ruleset.
//
// Ranges are what programs may reach: public addresses, and prefixes that the configuration opens. An address of the host
// itself is refused, also a public one, unless a prefix of its full length is open. DNS works with the host's resolv.conf: Network
// answers at the addresses of its servers, by asking the host's servers. An answer with an address that programs may not reach
// comes without addresses. ICMP and other protocols are dropped. Options.Loopback lends single ports of the host's loopback, for a proxy that
// the host serves there.
//
// One flow: a program connects to 203.0.113.7:443. The kernel holds its SYN, and readQueue gets it. admit makes a link and
// starts serve. dial checks the address, asks the Policy and connects. settle lets the SYN go on to the listener. accept hands
// the accepted connection to the link, and relayStream copies until both ends have ended.
package network
