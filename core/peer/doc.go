// Package peer refuses connections of the programs that this server runs to the server's own listeners.
//
// A program of the uv backend with a network shares the host's network. On the host's loopback it would be a local client,
// and without tokens a local client is trusted. Every program of the uv backend runs under a uid of its own, so the kernel's
// socket tables distinguish its connections from those of other clients.
//
// One flow: the CLI makes a Guard of the uids that run programs. Guard.Listener wraps a listener. The first Read of an
// accepted connection looks up the uid that owns the other end. If a program owns it, Read answers 403 and closes the
// connection.
//
// The package does not recognise programs that run under the server's own uid. It also does not recognise programs that
// reach the listener through another service of this host, such as a reverse proxy. Use tokens in both cases.
package peer
