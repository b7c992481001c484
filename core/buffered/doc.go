// Package buffered bounds the memory of the request bodies that a frontend reads completely into memory.
//
// The frontend bounds each body. A Budget bounds the bodies of all connections together. Each reader takes the size of its
// buffer from the Budget as bytes arrive, and returns it when the request is handled. An announced body without bytes takes
// nothing. With several owners, bodies of one owner cannot take all of it.
//
// One flow: a frontend opens a Share for a request, reads the body with ReadAll, and calls Release when the body has been
// passed on. If the Budget is used up, the body is refused with unavailable and a time to try again.
package buffered
