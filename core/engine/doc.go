// Package engine turns a Spec into an Execution: it implements executor.Service over a Store, Blobs and Backends.
//
// It is admission, queue, deadlines, recovery and retention. It is not a transport (frontends are), it knows no plugin
// process (package host does) and no sandbox (backends do).
//
// One flow: Submit checks the Spec and reserves a place; a run that can start now streams its input straight to
// Backend.Run, any other has it spooled to Blobs first; Store.Create makes the Execution, Queued opens its log; the
// backend's events pass a sink that keeps the order law; Finished closes the log, exactly once, whatever happens.
//
// What a reader of the contract may ask:
//
//   - An Execution exists once its input is whole (spooled) or about to be streamed (Input.Accepted tells when). A Submit
//     that ends before leaves nothing behind, so there is nothing to cancel.
//   - A place is held while an input is spooled, for at most Deadlines.Upload; a slot while one is streamed, for at most
//     Deadlines.Prepare. How long a sender may be silent is the frontend's matter.
//   - Owners take turns; within one owner it is first in, first out, but for a backend that has no room.
//   - A backend that is away before the program started, with the input untouched or spooled, is tried again: at most six
//     times, and not while its Info says that it is down. After Started there is no second try: the Execution is lost.
//   - An Execution whose caller waits (not Durable) does not survive its process: at Close and after a crash it is lost.
//     A Durable one stays queued for the next Start.
//   - The Engine backs up every deadline of its backends. One that does not stop a run in time is given up: the run ends,
//     its slot is free, what the backend still says is refused, and Remove is asked for.
//   - Spec.Requirements and Spec.PythonVersion of an Execution hold what was found in its files, where the Spec said
//     nothing and allowed to look.
package engine
