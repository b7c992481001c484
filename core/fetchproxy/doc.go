// Package fetchproxy is an HTTP proxy for what a preparation fetches on behalf of a caller: wheels, source archives and repositories whose
// addresses the caller, or a redirect, or a page of an index has chosen.
//
// It connects to the sources of the configuration whatever their addresses are, and to nothing else but public addresses, over https. It
// looks names up itself and connects to an address that it has checked, so that no name leads past the check. The refusal of an address
// does not depend on what is there, because no connection is made.
//
// It is not a sandbox: a program that ignores the variables of proxies is not held by it. Installers of wheels obey them, and run no code of
// packages. Where packages are built, the place of the build must have no other way to addresses that are not public.
//
// One flow: uv asks for CONNECT host:443. serveConnect asks the Policy, which looks host up. dial connects to one of the addresses, and
// the bytes of TLS are copied both ways. For an index over plain http the proxy passes the request on.
package fetchproxy
