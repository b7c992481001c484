// Package engine turns a Spec into an Execution: it implements executor.Service with a Store, Blobs and Backends.
//
// It does authority, admission, the queue, deadlines, recovery and retention. It is no transport (frontends are), it knows no plugin
// process (package host does) and no sandbox (backends do).
//
// One flow: Submit checks the Spec and reserves a place. A run that can start now streams its input straight to Backend.Run. The input
// of any other run is spooled to Blobs first. Store.Create makes the Execution, and Queued opens its log. The backend's events pass a
// sink that enforces their order. Finished closes the log, exactly once, whatever happens.
//
// Answers to questions that the contract leaves open:
//
//   - An Execution exists when its input is whole (spooled) or about to be streamed; Input.Accepted tells when. A Submit that ends
//     earlier leaves nothing behind, so there is nothing to cancel.
//   - An input that is spooled holds a place, for at most Deadlines.Upload. An input that is streamed holds a slot, for at most
//     Deadlines.Prepare. The frontend bounds how long a sender may be silent.
//   - Owners take turns. The Executions of one owner start in the order of their Submit, except where a backend has no room.
//   - An Execution whose backend is away before the program started is tried again, if its input is spooled or unread: at most six
//     times, and not while the backend's Info says that it is down. After Started there is no second try: the Execution is lost.
//   - Where programs outlive their plugin (Capabilities.Attach), the Engine attaches to a program whose plugin has died, from the end of
//     its log, when the backend is back within Deadlines.Reattach. Output and artifacts that are sent again count once.
//   - The caller of an Execution that is not Durable waits in this process. Such an Execution is lost at Close, and after a crash unless
//     its program outlives its plugin. A Durable one stays queued for the next Start, or running where its program outlives its plugin.
//   - Executions in a Session run one at a time, in the order of their ids. One whose input is still being uploaded is passed by. They
//     first wait for their turn, without a slot, and then for a slot: neither waits for the other.
//   - A Session is lost when its interpreter dies; RestartSession revives it. A Session is also lost when its backend answers that it does
//     not have the sandbox and cannot adopt it; nothing revives that one. What waits in a lost Session ends as lost. A backend that does
//     not answer cannot lose a Session.
//   - A Session is closed by request, when it was idle or lived for too long, and at Close where nothing could adopt it. It is also
//     closed to make room for another Session of its owner, if it has been idle for config.Sessions.EvictIdleSeconds.
//   - The Engine backs up every deadline of its backends. If a backend does not stop a run in time, the Engine gives the run up: the run
//     ends, its slot is free, later events are refused, and the backend is asked to Remove it.
//   - Spec.Requirements and Spec.PythonVersion of an Execution hold what was found in its files, where the Spec names none and allows
//     the Engine to look.
package engine
