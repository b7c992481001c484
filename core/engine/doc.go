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
//   - Where programs outlive their plugin (Capabilities.Attach), one whose plugin dies is followed again from where its log
//     ends, once the backend is back, within Deadlines.Reattach; what is sent again of its output and artifacts counts once.
//   - An Execution whose caller waits (not Durable) does not survive its process: at Close it is lost, and after a crash
//     unless its program outlives its plugin.
//     A Durable one stays queued for the next Start, or running, where its program outlives its plugin.
//   - Executions in a Session run one at a time, in the order of their ids; one whose input is still being uploaded is passed
//     by. They wait for their turn first, holding no slot, and then for a slot: neither waits for the other.
//   - A Session is lost when its interpreter dies (RestartSession revives it) or when its backend says that it has the
//     sandbox no more and cannot adopt it (nothing does). What waits in it ends with it, as lost. Only a backend that answers
//     can lose a Session; one that is away is waited for.
//   - A Session is closed when it was idle or lived for too long, by request, to make room for another of its owner's (only
//     if idle for config.Sessions.EvictIdleSeconds, never while something uses it), and at Close where nothing could adopt it.
//   - The Engine backs up every deadline of its backends. One that does not stop a run in time is given up: the run ends,
//     its slot is free, what the backend still says is refused, and Remove is asked for.
//   - Spec.Requirements and Spec.PythonVersion of an Execution hold what was found in its files, where the Spec said
//     nothing and allowed to look.
package engine
