// Package buffered bounds the memory of request bodies that a frontend holds whole.
//
// One body has a bound of its own. Bodies of many connections together have a Budget: each reader takes from it what its
// buffer holds, while the bytes come, and gives it back when the request is handled. A sender that announces a large body
// and sends nothing takes nothing.
//
// One flow: a frontend opens a Share for a request, reads the body with ReadAll, and calls Release when the body has been
// handed on. A body for which nothing is left is refused with unavailable and a time to try again.
package buffered
