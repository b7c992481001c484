// Package workers sends Executions to resident workers that Nomad keeps running: the mode workers of the Nomad backend.
//
// A Pool follows the registrations of one service (registry.go), and has a member for each worker: a connection, the worker's last Info,
// and what runs there (member.go). A Run leases a slot of the least loaded worker (lease.go), or waits for one. It goes to another worker
// only if nothing of it has started on the first. Sessions, and Executions that are followed again, stay with their worker, which their
// handle names.
package workers
