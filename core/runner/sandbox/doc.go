// Package sandbox starts programs that nobody trusts, enforces their limits, and kills all that they start.
//
// A Sandbox is what a runner has for its life: its Config, the disk, the threads that start programs. Prepared is what the
// next Execution needs and what is made before anybody asks for it. A Job starts a program; a Reaper waits for it and for
// everything that it leaves; KillUntil ends what does not end by itself.
//
// # What a program gets
//
// Descriptors 0, 1 and 2; a session and process group of its own; its slot's uid without other groups; no new privileges, no
// core dumps, 1,024 descriptors (hard 65,536), umask 022. Its working folder and HOME are the work folder (0700). Its
// environment is PATH, LANG, PYTHONUNBUFFERED and Start.Env.
//
// With Config.Tmpfs a program can write only to one tmpfs of Limits.DiskBytes. It holds the work folder and private folders
// in the place of the machine's /tmp, /var/tmp, /dev/shm and /run/lock. TMPDIR is /tmp. Of what those folders hold on the
// machine a program sees only what Config.Reach and Start name. The mounts belong to the runner and end with it and its
// programs. Without Config.Tmpfs, TMPDIR is a folder beside the work folder that is removed with it, and in a container
// Config.Temp.
//
// With Config.Box a program is in a box; see below.
//
// The system calls about keys are refused, and the session keyring is empty: a user's keyrings outlive its programs.
//
// A program dies with the thread that forked it, so also with the runner; in a box it dies with init. A root that is root only in a user namespace
// starts programs without capabilities.
//
// # Limits
//
// Limits hold from the first instruction: the forking thread enters the v1 groups before it forks, and v2 groups are joined
// by clone. Without a control group:
//   - RLIMIT_NPROC bounds processes where the uid is the slot's own;
//   - RLIMIT_AS bounds the address space of each process to MemoryBytes + 256 MiB, which gives a MemoryError and not
//     StatusOutOfMemory;
//   - the CPU weight is not enforced;
//   - PeakMemoryBytes is the main process's ru_maxrss, or that of a larger process that it has waited for. It is not less than what the
//     runner has had, about 10 MB, because the kernel counts from before execve.
//
// PeakResidentBytes is always the kernel's ru_maxrss of the main process. The parent gets it when it waits. A copy of a fork server whose exit is
// seen early has told it before, as its RLIMIT_RSS, which the kernel shows and does not enforce.
//
// RLIMIT_FSIZE always holds single files to DiskBytes. StatusOutOfMemory means that the main process died of SIGKILL and that
// its memory group or the runner has counted a kill. The Result of a program that did not succeed names the limit it hit, as
// a Failure of phase run and code exhausted: config.memory_mb if a process was killed for its memory, config.disk_mb if the
// disk was full while the program ran or at its end.
//
// Memory and disk are two limits, but the kernel charges files of a tmpfs to the control group of the program that writes
// them. So the limit of the group is MemoryBytes + DiskBytes, and the runner watches what the group holds without its files:
// anonymous memory, shared memory beyond the files, and what the kernel needs for the processes. Caches that the kernel can
// empty do not count. When that is more than MemoryBytes, the runner kills the largest process, as the kernel does at its own
// limit, until it is not. It looks more often the nearer the limit is, every 5 to 100 ms. In a container it watches the
// container's group, without its own memory. Where DiskBytes is 0, or no control group can be read, only the kernel's limit
// holds.
//
// When the main process has ended, or the grace after a limit is over, everything else is killed: the control groups, then
// all descendants of the runner, which is a subreaper, until wait says that no child is left. Only then is the output, which
// has then ended, drained, and only then are Artifacts read. After a Cancel none are.
//
// # In a box
//
// A box is the namespaces of a runner's programs: pid, mounts, ipc, host name, and a network with only loopback. The runner
// stays outside. It makes the box's root folder on a small tmpfs: /usr and the links beside it, what the C library, OpenSSL and
// Python read of /etc, a made-up /etc/passwd, a minimal /dev, and what Config.Reach and Start name. All of that is bound
// read-only with all that is mounted below it, without setuid programs and devices. /work, /tmp, /var/tmp, /dev/shm and
// /run/lock are one tmpfs of Limits.DiskBytes for each Execution. HOME is /work. Mounts that the runner makes in the root
// folder later appear in the box, whose mounts are slaves of the runner's.
//
// The box's init is this program again, as PID 1 of the pid namespace (InitMain). It makes the mounts from inside, and
// then only waits for orphans and kills everything when it is asked (boxFrame). Programs are children of the runner all the
// same: the threads that start them are in the box. A program sees 0 as its parent. What it leaves becomes a child of init. So a
// box is empty if the runner has waited for the main process and init has no children. Otherwise init kills all others at once.
// When the runner ends, init ends, by its parent-death signal or because its socket ends, and the kernel kills all in the box.
// When init ends, the runner answers the Execution that runs, and ends.
//
// A program in a box has no capabilities, also none that a setuid program could give it, and cannot get a user namespace
// (chrootBox). A filter refuses it the calls that change mounts and namespaces, and others that programs do not need and that
// kernels were broken by. It is a list of what is refused, so that new calls work. Landlock, where it is there, refuses device
// files and changes of mounts, and sockets of other programs that have no file. Without root the runner has uid BoxUser in a
// user namespace, and so have programs.
//
// # PID 1 of a container
//
// There the program has the runner's own uid. So the runner
//   - is not dumpable: no ptrace, nothing of /proc/1 is readable, no pidfd_getfd;
//   - closes its descriptors to programs;
//   - leaves every signal but SIGCHLD and SIGURG to the kernel, which lets none from inside reach PID 1;
//   - refuses programs the calls that would change its resource limits or its scheduling;
//   - has the threads it needs before a fork bomb can take them (protocol.OwnThreads);
//   - starts programs with oom_score_adj 1000 while it keeps the container's.
//
// SIGTERM does not end it; killing the container does. It ends everything by kill(-1). Where it may only read its own control
// groups, they tell StatusOutOfMemory (a kill was counted, and the main process died of SIGKILL), the CPU time, and the peak
// of the whole container. Page cache and tmpfs count in that peak. An earlier Execution may hide it, in which case it is
// sampled. A container that is killed whole, also for its memory, has no Result; its backend reports the reason.
//
// # On gVisor
//
// A runner that finds gVisor's kernel (KernelGVisor in HelloReply) behaves differently. Signals from inside reach PID 1 there,
// and its descriptors can be opened by their names in /proc. So the container starts the runner as root of that kernel, and
// Config.UID names the program's user, which can touch nothing of the runner. The runner catches signals instead of leaving
// them to the kernel, and drops the capabilities that programs would be bounded by. There are no control groups inside:
// RLIMIT_NPROC bounds processes, CPU time is that of the processes that were waited for, and the peak is the main process's
// ru_maxrss. The control group of the whole container, on the machine, bounds memory. When it is full the container ends,
// without a Result. gVisor follows a link that is opened as a folder, in spite of O_NOFOLLOW. So the runner opens folders without
// O_DIRECTORY, and follows the links of a session's paths itself.
package sandbox
