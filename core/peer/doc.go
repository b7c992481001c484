// Package peer keeps the programs that this server runs away from the server's own listeners.
//
// A program with a network shares the host's until it has one of its own. On the host's loopback it would be a local
// client, and without tokens a local client is trusted. Every program of the uv backend runs under a uid of its own, so
// the kernel's socket tables tell its connections from those of other clients.
//
// One flow: the CLI makes a Guard of the uids that run programs; Guard.Listener wraps a listener; the first Read of an
// accepted connection looks up the uid that owns the other end, and answers 403 and closes where a program owns it.
//
// What the package does not do: it knows no program that runs under the server's own uid, and no program that reaches the
// listener through another service of this host, such as a reverse proxy. Tokens are the answer to both.
package peer
