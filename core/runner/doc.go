// Package runner is the small agent inside a Sandbox, and the host's end of it.
//
// The agent (Main, Linux only) is resident: it serves one connection and runs one Execution at a time, then the next. It
// unpacks the Workspace while it arrives, starts the program under its limits, streams both outputs with offsets, kills
// everything that the program started, collects Artifacts and reports the Result. The host (Conn) speaks to it over any
// byte stream: a socketpair to a process, later a container's attached standard streams. This package knows nothing of
// interpreters, environments or images; a backend puts those into a Start.
//
// One flow: NewConn sends Hello with a Config; Run sends Start, the Workspace and Stdin as the agent grants credit; the
// agent answers Started, Output…, Artifact…, Exited; Run returns the Result. What takes time and is nobody's concern
// (unmounting, removing folders and control groups) happens after Exited.
//
// # Protocol
//
// Version 1. Both directions carry frames: a payload length (4 bytes, big-endian), a type (1 byte), the payload. A frame
// that is longer than its type allows, of a type that does not exist or that the receiver never gets, ends the connection.
//
//	host → runner
//	  1 Hello         JSON {version, epoch, config, resume, stdout, stderr}; first of all
//	  2 Start         JSON Start, ≤ 16 MiB; only when the Execution before has been answered with Exited
//	  3 Workspace     ≤ 256 KiB of the tar; needs credit          4 WorkspaceEnd
//	  5 Stdin         ≤ 256 KiB; needs credit                     6 StdinEnd: the program sees EOF
//	  7 Cancel        SIGTERM to the program's group, after Limits.KillGrace SIGKILL to all; idempotent
//	  8 Signal        signal number (1 byte) to the program's group
//	  9 Ack           stdout and stderr offsets (8 bytes each) up to which output is in the log
//	 10 Ping          answered by HelloReply
//	 11 File          the Workspace is in the descriptor that comes along (SCM_RIGHTS), in place of 3; 4 follows when it is whole
//	runner → host
//	 64 HelloReply    JSON {version, epoch, pid, execution_id, error}; an error is a refusal, and the end
//	 65 Progress      JSON executor.Progress          66 Started    JSON executor.Started
//	 67 Output        stream (1 byte: 1 stdout, 2 stderr), offset (8 bytes), 1 byte to 256 KiB of data
//	 68 Artifact      JSON {path, size, mode, mod_time}, then
//	 69 ArtifactData  ≤ 256 KiB; needs credit         70 ArtifactEnd
//	 72 Exited        JSON executor.Result without Artifacts; the last word about an Execution
//	both
//	 96 Credit        channel (1 byte: 1 Workspace, 2 Stdin, 3 Artifact), bytes (4 bytes) that the receiver has consumed
//
// Neither side buffers without bound, and neither blocks the other's other channels. Per Execution a sender may have a
// window of bytes on their way (Workspace 1 MiB, Stdin 256 KiB, Artifact 1 MiB) and then waits for Credit; of each output
// stream at most 1 MiB is unacknowledged, and then the program's own write blocks. So a receiver takes every frame off the
// stream at once: a program that reads no stdin blocks neither the Workspace nor a Cancel, and a slow log blocks only the
// program. A sender that overruns its window ends the connection. Frames about an Execution that has been answered are
// dropped.
//
// The epoch is drawn when a runner starts. The end of the stream is the end of the host: with Config.Silence 0 the runner
// kills its program, cleans up and exits. With Silence > 0, for streams that have no end, that happens when no frame has
// come for so long (hosts Ping); until then the program goes on, unacknowledged output is kept, and a Hello with resume
// and the offsets that the new host has brings Started, the output from there, and Exited if it is due.
//
// # What a program gets
//
// Descriptors 0, 1 and 2; a session and process group of its own; its slot's uid without other groups; no new privileges,
// no core dumps, 1,024 descriptors (hard 65,536), umask 022; cwd = HOME = the work folder (0700, a tmpfs of
// Limits.DiskBytes where the runner may mount), TMPDIR = .tmp in it; PATH, LANG, PYTHONUNBUFFERED and what Start.Env says.
// A program dies with the thread that forked it, so also with the runner. A root that is one only in a user namespace
// starts programs without capabilities.
//
// Limits hold from the first instruction: the forking thread enters the v1 groups before it forks, v2 groups are joined
// by clone. Without a control group: RLIMIT_NPROC bounds processes where the uid is the slot's own, RLIMIT_AS bounds the
// address space of each process to MemoryBytes + 256 MiB (a MemoryError, not StatusOutOfMemory), the CPU weight is not
// enforced, and PeakMemoryBytes is the main process's VmHWM as last seen. RLIMIT_FSIZE holds single files to DiskBytes
// always. StatusOutOfMemory means that the main process died of SIGKILL and its memory group has counted a kill.
//
// When the main process has ended, or a limit's grace is over, everything else is killed: the control groups, then all
// descendants of the runner (which is a subreaper), until wait says that no child is left. Only then is the output, which
// has then ended, drained, and only then are Artifacts read. After a Cancel none are.
//
// # What a Workspace may hold
//
// Regular files, folders, symbolic links that stay inside and hard links to regular files of the same archive; PAX, GNU
// and ustar, long names, sparse files by their full size; at most 100,000 entries, 200 folders deep, names ≤ 4,096 bytes,
// together at most Limits.DiskBytes. Refused as invalid in the phase prepare, with the entry's name: absolute names, "..",
// names that are not UTF-8 (results and events are JSON and could not name them), entries whose path leads through a link,
// links that leave (also several together), devices, FIFOs, unknown types, a file in the place of a folder with files,
// archives that are cut off (an end mark is required), compressed or no tar at all. Of duplicate names the last wins. Set-id
// bits are dropped, owners are always able to read and write, times are kept. What follows the end mark is read and ignored.
package runner
