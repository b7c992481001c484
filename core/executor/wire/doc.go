// Package wire carries the two seams of the contract, Backend and Service, over gRPC, in both directions.
//
// The adapter that this package returns on one side of a connection behaves as the value on the other side does: the same
// methods, codes, events, ordering and back-pressure. The package knows gRPC and nothing of processes. Package plugin
// knows processes.
//
// Run is one bidirectional stream. The caller sends the job, one acknowledgement for each event or artifact when its sink
// has returned, and a cancel when its ctx ends. The backend's side sends events and artifacts, one at a time, and last the
// result or the error. So Emit returns nil only when the event is in the caller's log, and a blocked sink blocks the
// program.
//
// Each source of a Run or a Submit has a Feed stream of its own, which the caller opens before the call. The reader asks
// for the source's bytes on that stream, and gRPC's flow control is the back-pressure: neither side holds more than a few
// chunks, and a slow reader delays nothing else. A large workspace may take a unix socket instead (socket.go), because a
// backend can pass the socket's descriptor on.
//
// Generated types stay in internal/pb. A message has the names of its type, and convert.go copies the fields by their names.
package wire
