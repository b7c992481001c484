// Package networktest makes a world of network namespaces for tests of programs that have a network: a host, which is that of the
// test process, and an outside that has every other address. Nothing is sent to the machine's own network.
package networktest
