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
//	  1 Hello         JSON {version, epoch, config}; first of all. To resume: {version, epoch, resume, nonce, execution_id,
//	                  stdout, stderr}, behind a marker
//	  2 Start         JSON Start, ≤ 16 MiB; only when the Execution before has been answered with Exited
//	  3 Workspace     ≤ 256 KiB of the tar; needs credit          4 WorkspaceEnd
//	  5 Stdin         ≤ 256 KiB; needs credit                     6 StdinEnd: the program sees EOF
//	  7 Cancel        SIGTERM to the program's group, after Limits.KillGrace SIGKILL to all; idempotent
//	  8 Signal        signal number (1 byte) to the program's group
//	  9 Ack           stdout and stderr offsets up to which output is in the log, number of Displays in it (8 bytes each)
//	 10 Ping          answered by HelloReply
//	 11 File          the Workspace is in the descriptor that comes along (SCM_RIGHTS), in place of 3; 4 follows when it is whole
//	                  or, without one, in the runner's door: see below
//	 12 Bye           the runner kills its program and exits
//	 20 Session       JSON {n, op, …}: a call about the session, ≤ 16 MiB; several may be at work, n tells them apart
//	 21 SessionData   n (4 bytes), ≤ 256 KiB of a file that is written; needs credit
//	 22 SessionEnd    n, 1 byte: the file is whole
//	runner → host
//	 64 HelloReply    JSON {version, epoch, pid, execution_id, running, silence, error, code}; an error is a refusal, and the
//	                  end, unless it is one to resume
//	 65 Progress      JSON executor.Progress          66 Started    JSON executor.Started
//	 67 Output        stream (1 byte: 1 stdout, 2 stderr), offset (8 bytes), 1 byte to 256 KiB of data
//	 68 Artifact      JSON {path, size, mode, mod_time}, then
//	 69 ArtifactData  ≤ 256 KiB; needs credit         70 ArtifactEnd
//	 72 Exited        JSON executor.Result without Artifacts; the last word about an Execution
//	 80 SessionReply  JSON {n, more, code, message, …}: answers a call; the last one has no more
//	 81 SessionFile   n, ≤ 256 KiB of a file that is read; needs credit
//	 83 Display       JSON executor.Display, ≤ 4 MiB unacknowledged
//	 76 Lost          the runner cannot follow what the host sends any more; only a resume helps
//	both
//	 40 SessionCredit n (4 bytes), bytes (4 bytes) of a file that the receiver has consumed, of a window of 1 MiB
//	 96 Credit        channel (1 byte: 1 Workspace, 2 Stdin, 3 Artifact), bytes (4 bytes) that the receiver has consumed
//
// Neither side buffers without bound, and neither blocks the other's other channels. Per Execution a sender may have a
// window of bytes on their way (Workspace 4 MiB, Stdin 256 KiB, Artifact 1 MiB) and then waits for Credit; of each output
// stream at most 1 MiB is unacknowledged, and then the program's own write blocks. So a receiver takes every frame off the
// stream at once: a program that reads no stdin blocks neither the Workspace nor a Cancel, and a slow log blocks only the
// program. A sender that overruns its window ends the connection. Frames about an Execution that has been answered are
// dropped.
//
// Credit costs a round trip per window, which is long behind a container's daemon. A host that is root on the same machine
// therefore opens a pipe of the runner's, its door, as /proc/PID/fd/N (N is in HelloReply; Config.Door asks for it), says
// File and writes one Workspace there; the kernel holds the writer back, and 4 says on the stream whether that was all. The
// runner closes its own end of the door for writing when File comes, so before any program starts.
//
// The end of the stream is the end of the host, and with Config.Silence 0 the runner then kills its program, cleans up and
// exits.
//
// # Sessions
//
// Between the calls open and close the runner has a session: a work folder, control groups, and an interpreter that runs one
// of the drivers (package drivers). An Execution with Start.Session is a cell for that interpreter, or, with a Command, a
// process of its own in the same place. One at a time; calls about files at any time; variables and path wait their turn.
//
// The driver is told what to do over a socket that it shares with the user's code, so the runner takes what it says for what
// it is: bounded lines, a bounded number of Displays, answers by number, and a clock that runs beside. What cannot be
// understood ends the interpreter. Output is read from the interpreter's own pipes, which never end: after the driver's word
// that a cell is done, what then lies in the pipes still belongs to it, and no more is waited for. What comes between two
// Executions is kept, the newest 512 KiB of each stream, and is the first output of the next one; Started tells how much it
// is. The counts in a Result include what went.
//
// Cancel and timeout send SIGINT to the interpreter and to what it has started since the cell began, so background
// processes live on. Who is not back after Limits.KillGrace is killed, with all it started, and started anew
// (SessionStateRestarted); an interpreter that ends by itself is not (SessionStateLost), until the call restart. Standard
// input comes through a FIFO that the driver opens as descriptor 0.
//
// A Command's processes have a control group below the session's and are killed by it; without control groups they are the
// children that the runner has got since, which takes in what the interpreter's background processes have left meanwhile.
// CPU time and peak memory are the interpreter's group's, measured from the cell's beginning, as far as the kernel can
// begin a peak anew.
//
// Files are opened through an os.Root, so no link leads out of the folder. They are written under another name and renamed,
// and belong to the program's uid.
//
// # Hosts that come and go
//
// A container's standard streams have no end: the host that was attached is killed, and nobody tells. So with Config.Silence
// > 0 a host Pings, and the runner ends when no frame has come for that long, after Bye, at Config.Deadline, or at
// Start.Deadline; a runner on standard streams to which nobody says Hello ends after a minute. Until then the program goes
// on, and its timeout holds. A host ends its connection when it has heard nothing for that long, in turn.
//
// While nobody is attached, what the runner writes may be swallowed, or its write may block for ever. Therefore one
// goroutine writes, nobody waits for it, and nothing counts as told because it was written: output and Displays are kept
// until they are acknowledged (1 MiB per stream, 4 MiB of Displays; beyond it the program's own write blocks), the work folder
// and the Result until the next Start.
//
// Another host takes over with the marker (0xff "resume" 0x00 and the epoch, 8 bytes big-endian) and a Hello with resume. It
// may follow the middle of a frame, for the host before was cut off there, so the runner looks for the marker in all that
// it reads, whatever frame it is in, and drops what was before it. The epoch is 64 random bits that only the hosts know: no
// Workspace can contain a marker. So that nothing waits for bytes that could be the beginning of one, a host sends a Ping
// behind a frame that ends like that. Bytes of the host before that arrive later still break the framing: the runner then
// says Lost, reads on to the next marker, and the host attaches again.
//
// The runner answers with the nonce of the Hello, 16 random bytes, bare, and behind it HelloReply: the new host finds its
// place by that in what it reads, which may begin anywhere and contain whatever the program has written. If it named the
// Execution at hand there follow Started (if it has started), the output from its offsets, unacknowledged Displays, and in
// the end all Artifacts and Exited, also when another host has had them. An Execution that is not named runs on and is held
// as if nobody were there. Another epoch is no marker, hence no answer; another Execution, or output that was acknowledged
// and is asked for again, is refused with not_found, and the runner goes on.
//
// Input dies with its host: a Workspace that was not whole fails the Execution in the phase prepare (unavailable), and Stdin
// ends where it was cut.
//
// # PID 1 of a container
//
// There the program has the runner's own uid, so the runner is not dumpable (no ptrace, nothing of /proc/1 is readable, no
// pidfd_getfd), closes its descriptors to programs, leaves every signal but SIGCHLD and SIGURG to the kernel, which lets none
// from inside reach PID 1, refuses programs the calls that would change its resource limits or its scheduling, has the
// threads it needs before a fork bomb can take them (OwnThreads), and starts programs with oom_score_adj 1000 while it keeps
// the container's. SIGTERM does not end it; killing the container does. It ends everything by kill(-1). Where it may only
// read its own control groups they tell StatusOutOfMemory (a kill was counted, and the main process died of SIGKILL), the
// peak (of the whole container: page cache and tmpfs count, and an earlier Execution may hide it, in which case it is
// sampled) and the CPU time. A container that is killed whole, also for its memory, has no Result; its backend says so.
//
// # On gVisor
//
// gVisor's kernel differs where it matters to a PID 1, so a runner that finds it (KernelGVisor in HelloReply) does otherwise.
// Signals from inside reach PID 1 there, and its descriptors can be opened by their names in /proc; so the container starts
// the runner as root of that kernel, Config.UID names the program's user, and nothing of the runner is the program's to touch.
// The runner catches signals instead of leaving them to the kernel, and drops the capabilities that programs would be bounded
// by. There are no control groups inside: RLIMIT_NPROC bounds processes, CPU time is that of what was waited for, and the
// peak is the main process's as last seen. Memory is bounded by the control group of the whole container, on the machine:
// when it is full the container ends, without a Result. A folder is opened without asking for one, and links of a session's
// paths are followed by the runner itself, because a link that is to be a folder is followed there whatever is asked for.
//
// # What a program gets
//
// Descriptors 0, 1 and 2; a session and process group of its own; its slot's uid without other groups; no new privileges,
// no core dumps, 1,024 descriptors (hard 65,536), umask 022; cwd = HOME = the work folder (0700); PATH, LANG, PYTHONUNBUFFERED and what Start.Env says.
//
// With Config.Tmpfs all that a program may write to is one tmpfs of Limits.DiskBytes: the work folder, and private folders
// in the place of the machine's /tmp, /var/tmp, /dev/shm and /run/lock. TMPDIR is /tmp. Of what those folders hold on the
// machine a program sees only what Config.Reach and Start name. The mounts are the runner's and end with it and its
// programs. Files in a tmpfs are charged as memory, so they count towards MemoryBytes as well. Elsewhere TMPDIR is a
// folder beside the work folder that goes with it, and in a container Config.Temp.
//
// The system calls about keys are refused, and the session keyring is empty: a user's keyrings outlive its programs.
//
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
