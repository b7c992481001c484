// Package engine turns a Spec into an Execution: it implements executor.Service over a Store, Blobs and Backends.
//
// It is admission, queue, deadlines, recovery and retention. It is not a transport (frontends are), it knows no plugin
// process (package host does) and no sandbox (backends do).
//
// One flow: Submit checks the Spec and reserves a place; a run that can start now streams its input straight to
// Backend.Run, any other has it spooled to Blobs first; Store.Create makes the Execution, Queued opens its log; the
// backend's events pass a sink that keeps the order law; Finished closes the log, exactly once, whatever happens.
package engine
