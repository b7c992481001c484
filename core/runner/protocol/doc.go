// Package protocol is what a host and a runner say to each other. Both ends use its frames, messages and windows.
//
// # Frames
//
// Version 1. Both directions carry frames: the payload's length (4 bytes, big-endian), a type (1 byte), the payload. A
// frame ends the connection if it is longer than its type allows, or if the receiver does not expect its type.
//
//	host → runner
//	  1 Hello         JSON {version, config}; the first frame. To resume, behind a marker: {version, resume,
//	                  nonce, execution_id, stdout, stderr}
//	  2 Start         JSON Start, ≤ 16 MiB; only after the Exited of the Execution before
//	  3 Workspace     ≤ 256 KiB of the tar; needs credit          4 WorkspaceEnd
//	  5 Stdin         ≤ 256 KiB; needs credit                     6 StdinEnd: the program sees EOF
//	  7 Cancel        SIGTERM (with Start.Interrupt SIGINT) to the program's group, SIGKILL to everything after Limits.KillGrace; idempotent
//	  9 Ack           offsets of stdout and stderr up to which output is in the log, number of Displays in it (8 bytes each)
//	 10 Ping          answered by HelloReply
//	 11 File          the Workspace is in the descriptor that comes with this frame (SCM_RIGHTS), or in the workspace pipe;
//	                  4 follows when it is whole
//	 12 Bye           the runner kills its program and exits
//	 20 Session       JSON {n, op, …}: a request about the session, ≤ 16 MiB; n tells several apart
//	 21 SessionData   n (4 bytes), ≤ 256 KiB of a file that is written; needs credit
//	 22 SessionEnd    n, 1 byte: the file is whole
//	runner → host
//	 64 HelloReply    JSON {version, epoch, pid, execution_id, running, silence, error, code}; an error refuses the Hello, and
//	                  ends the connection unless the host asked to resume
//	 65 Progress      JSON executor.Progress          66 Started    JSON executor.Started
//	 67 Output        stream (1 byte: 1 stdout, 2 stderr), offset (8 bytes), 1 byte to 256 KiB of data
//	 68 Artifact      JSON {path, size, mode, mod_time}, then
//	 69 ArtifactData  ≤ 256 KiB; needs credit         70 ArtifactEnd
//	 72 Exited        JSON executor.Result without Artifacts; the last frame about an Execution
//	 76 Lost          the runner cannot follow the host's frames any more; the host has to resume
//	 80 SessionReply  JSON {n, more, code, message, …}: answers a request; more is false in the last reply
//	 81 SessionFile   n, ≤ 256 KiB of a file that is read; needs credit
//	 83 Display       JSON executor.Display, ≤ 4 MiB unacknowledged
//	both
//	 40 SessionCredit n (4 bytes), bytes (4 bytes) of a file that the receiver has consumed, of a window of 1 MiB
//	 96 Credit        channel (1 byte: 1 Workspace, 2 Stdin, 3 Artifact), bytes (4 bytes) that the receiver has consumed
//
// # Windows
//
// Neither end buffers without bound, and neither blocks the other's other channels. Per Execution a sender may have a window
// of bytes on their way: Workspace 4 MiB, Stdin 256 KiB, Artifact 1 MiB. Then it waits for Credit. Of each output stream at
// most 1 MiB is unacknowledged; then the program's own write blocks. So a receiver takes every frame off the stream at once.
// A program that reads no stdin blocks neither the Workspace nor a Cancel, and a slow log blocks only the program. A sender
// that overruns its window ends the connection. The runner drops frames about an Execution that has been answered.
//
// Credit costs a round trip per window, which takes long behind a container's daemon. A host that is root on the same
// machine therefore opens the runner's workspace pipe as /proc/PID/fd/N. HelloReply has N, and Config.WorkspacePipe asks for the
// pipe. The host says File and writes one Workspace to the pipe; the kernel holds the writer back. Frame 4 says whether that
// was all. The runner closes its own end for writing when File comes, before any program starts.
//
// With Config.Silence 0 the end of the stream is the end of the host: the runner kills its program, cleans up and exits.
//
// # Workspaces that come again
//
// A Start with a Tree may have a Workspace or none. With one, the runner unpacks it and may keep the files under that name. It then says so
// in Started.Kept. The next Start with that Tree needs no Workspace. Any other Start that is not of a session ends what is kept. So both
// ends know it without asking. docs/decisions/0030 says how the files are shared.
//
// # Hosts that come and go
//
// A container's standard streams have no end: nothing tells the runner that the attached host was killed. So with
// Config.Silence > 0 a host Pings. The runner ends when no frame has come for that long, after Bye, or at
// Start.Deadline. A runner on standard streams ends after a minute if no host says Hello. Until then the program goes on,
// and its timeout holds. A host ends its connection when it has heard nothing for that long.
//
// While no host is attached, what the runner writes may be lost, or its write may block for ever. Therefore one goroutine
// writes, and no other waits for it. Nothing counts as delivered because it was written. Output and Displays are kept until
// they are acknowledged: 1 MiB per stream and 4 MiB of Displays, beyond which the program's own write blocks. The work folder
// and the Result are kept until the next Start.
//
// Another host takes over with the marker (0xff "resume" 0x00 and the epoch, 8 bytes big-endian) and a Hello with resume. The
// host before may have been cut off in the middle of a frame. So the runner looks for the marker in all that it reads, and
// drops what came before it. The epoch is 64 random bits that only hosts know: no Workspace can contain a marker. The runner
// holds back bytes that could begin a marker, so a host sends a Ping behind a frame that ends with such bytes. Bytes of the
// host before may still arrive later and break the framing. The runner then says Lost, reads on to the next marker, and the
// host attaches again.
//
// The runner answers with the nonce of the Hello, 16 random bytes, and HelloReply behind it. The bytes that the new host reads
// may begin anywhere and contain any output of the program. The nonce marks the beginning of the answer. If the host named the
// current Execution, there follow Started (if it has started), the output from the host's offsets on, unacknowledged Displays,
// and in the end all Artifacts and Exited, also if another host has had them. An Execution that the host did not name runs on.
// A marker with another epoch is ignored. A request for another Execution, or for output that was already acknowledged, is
// refused with not_found, and the runner continues.
//
// Input ends with its host. A Workspace that was not whole fails the Execution in the phase prepare (unavailable), and Stdin
// ends where it was cut.
//
// docs/decisions/0011 says why a host does not resume over a separate stream, and why this package has its own windows.
package protocol
