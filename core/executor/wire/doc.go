// Package wire carries the two seams of the contract, Backend and Service, over gRPC, both ways.
//
// A value on one side of a connection and the adapter that this package returns on the other side cannot be told apart:
// the same methods, codes, events, ordering and back-pressure. It knows gRPC and nothing of processes: go-plugin is
// core/executor/plugin's affair.
//
// Run is one bidirectional stream. The caller sends the job, the bytes of its sources as far as the other side has given
// credit for them, an acknowledgement for each event when its sink has returned, and a cancel when its ctx ends. The
// backend's side sends events and artifacts, one at a time, credit, and last the result or the error. So Emit returns nil
// only when the event is in the caller's log, a blocked sink blocks the program, and neither side ever holds more than a
// few chunks.
//
// Generated types stay in internal/pb; convert.go and errors.go are the only places that know both worlds.
package wire
