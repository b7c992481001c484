// Package output carries what a program writes to the host, and holds the program back when the host is slow.
//
// A Pump reads one of the program's pipes and puts what it reads into an Outbox. The Outbox joins small pieces and keeps their
// order. Its Backlog lets at most a window of each stream go unacknowledged. Where hosts come and go, the Backlog keeps that
// window, so that the next host gets it again.
package output
