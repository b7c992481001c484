// Package worker carries a Backend to another machine. Server serves one over TCP with mutual TLS, Client is the Backend at the other
// end.
//
// Both ends have a certificate of one authority, with the DNS name of their role: a server of python-executor does not talk to another
// server, and a worker takes no one's work but a server's. The files are read again when they have changed.
//
// A Server leases slots. A Run for which there is none, and a Run that comes while the Server drains, is refused before anything of it has
// started; Unstarted recognises that, so that the caller may try elsewhere. Several servers may use one Server: each names its installation
// with its calls, and reaches only its own Executions and Sessions. A server that stays silent loses its Sessions.
package worker
