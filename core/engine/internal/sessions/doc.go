// Package sessions keeps the Sessions of an engine: their records, their sandboxes, and the order in which Executions and tools
// use their interpreters.
//
// A Registry holds the Sessions whose sandbox is there, as far as is known. All others are in the Store only. A Session opens with
// Registry.Open and ends when it is closed (by request, when it expires, to make room, with the server) or lost. A Registry looks
// after its Sessions in Keep: it asks backends that were restarted for their sandboxes and deletes old records.
//
// An Execution or a tool that uses the interpreter needs a Turn. An Execution first waits for its turn, without a slot, and then in
// the engine's queue. So no slot is held by an Execution that waits for a Session, and no two can wait for each other.
//
// The engine judges requests: what a Principal may do, and whether a Spec is valid. This package knows no Principal.
//
// Locks: a Registry has one lock for all its Sessions. The engine may hold its own lock when it calls a method of Session or Turn
// that says so. The Registry calls the engine and Runs without its lock.
package sessions
