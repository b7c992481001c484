package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// boxFrame is a message between the runner and the init of a box: a length of four bytes, big-endian, and JSON.
//
//	init → runner   {"op":"ready"} once: the box is made; or {"op":"failed","error":…} in its place
//	runner → init   {"op":"end"}: kill all processes of the box
//	init → runner   {"op":"empty"}: no process is left but init and children of the runner
type boxFrame struct {
	Op    string `json:"op"`
	Error string `json:"error,omitempty"`
	// Last is the highest number of a thread of init, in the box. It comes with ready.
	Last uint32 `json:"last,omitempty"`
}

// maxBoxFrame bounds a frame.
const maxBoxFrame = 64 << 10

func writeBoxFrame(w io.Writer, f boxFrame) error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)) //nolint:gosec // short
	return err
}

func readBoxFrame(r io.Reader) (f boxFrame, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxBoxFrame {
		return f, fmt.Errorf("a frame of %d bytes", n)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(r, raw); err != nil {
		return f, err
	}
	return f, json.Unmarshal(raw, &f)
}

// boxSocket is the descriptor of the socket to the runner.
const boxSocket = 3

// InitMain is the first process of a box. dir is the tmpfs with the box's root folder. InitMain makes the box from inside, then
// waits for orphans, and kills all processes when the runner asks. It ends with the socket, and the box ends with it.
func InitMain(args []string) int {
	if os.Getpid() == 1 && len(args) > 6 {
		_, _ = fmt.Fprintln(os.Stderr, "init:", forkInitMain(args))
		return 1
	}
	unix.CloseOnExec(boxSocket)
	conn := os.NewFile(boxSocket, "runner")
	if os.Getpid() != 1 || len(args) != 1 {
		_, _ = fmt.Fprintln(os.Stderr, "init: must be started by a runner")
		return 2
	}
	err := enterRoot(args[0])
	if err == nil {
		err = loopbackUp()
	}
	if err == nil {
		err = settleInit()
	}
	if err != nil {
		_ = writeBoxFrame(conn, boxFrame{Op: "failed", Error: err.Error()}) // a runner that is gone needs no reason
		return 1
	}
	last, err := lastOwnThread()
	if err == nil {
		err = writeBoxFrame(conn, boxFrame{Op: "ready", Last: last})
	}
	if err != nil {
		return 1
	}
	return serveInit(conn)
}

// settleInit makes this process one that programs cannot touch, although they may have its uid.
func settleInit() error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // it allocates nearly nothing
	makeThreads(initThreads)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	unix.Umask(0o022)
	ChildEnded()
	// Go reaches all threads by a signal, which IgnoreSignals takes away.
	if err := keepOnlyKill(); err != nil {
		return err
	}
	IgnoreSignals()
	return nil
}

// initThreads are made ahead, so that all threads of init have numbers below those of programs.
const initThreads = 6

// lastOwnThread returns the highest number of this process's threads.
func lastOwnThread() (uint32, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	var last uint32
	for _, e := range entries {
		last = max(last, uint32(parseNumber([]byte(e.Name())))) //nolint:gosec // the kernel's own numbers
	}
	return last, nil
}

// keepOnlyKill drops all capabilities of all threads but the one to kill programs of other uids.
func keepOnlyKill() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	data[0].Permitted, data[0].Effective = 1<<unix.CAP_KILL, 1<<unix.CAP_KILL
	//nolint:gosec // the call takes them so
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if errno != 0 && errno != unix.ENOTSUP { // a binary with cgo, as of a test, has threads that Go does not know
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// serveInit reaps orphans, and serves the runner until it is gone.
func serveInit(conn *os.File) int {
	asked := make(chan error)
	go func() {
		for {
			f, err := readBoxFrame(conn)
			if err == nil && f.Op != "end" {
				err = fmt.Errorf("unknown operation %q", f.Op)
			}
			asked <- err
			if err != nil {
				return
			}
		}
	}()
	changed := ChildEnded()
	for {
		select {
		case <-changed:
			for {
				if pid, _, _, err := waitAny(); err != nil || pid <= 0 {
					break
				}
			}
		case err := <-asked:
			if err != nil {
				return 0 // the kernel kills what is left
			}
			killAll(changed)
			if err := writeBoxFrame(conn, boxFrame{Op: "empty"}); err != nil {
				return 0
			}
		}
	}
}

// killAll kills all processes of the box and waits for those that are children of this one.
func killAll(changed <-chan os.Signal) {
	for {
		_ = unix.Kill(-1, unix.SIGKILL) // all at once: a process that forks meanwhile has its signal before its child is there
		for {
			pid, _, _, err := waitAny()
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if err != nil || pid <= 0 {
				break
			}
		}
		<-changed
	}
}

// enterRoot makes the mounts and the host name of a new box, whose tmpfs is dir.
func enterRoot(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("slave mounts: %w", err)
	}
	trees := hierarchyTrees()
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("root folder: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// A user namespace may mount a proc only while it sees one that hides nothing, so this comes before the old root is gone.
	proc := "/" + boxRoot + "/proc"
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil { // the old root lies on the new one
		return fmt.Errorf("detach the old root: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: readOnly}); err != nil {
		return fmt.Errorf("root folder: read-only: %w", err)
	}
	if err := errors.Join(maskProc(proc), mountShown(proc, trees)); err != nil {
		return err
	}
	if err := chrootBox(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(boxName)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	return nil
}

// chrootBox enters the root folder of the mount namespace's box. A process whose root is not that of its mount namespace cannot
// make a user namespace, whatever it calls (create_user_ns in the kernel). It has no name for the box's other folder either.
func chrootBox() error {
	if err := unix.Chroot("/" + boxRoot); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return unix.Chdir("/")
}

// maskProc hides what tells of the machine and what changes it, as container runtimes do.
func maskProc(proc string) error {
	for _, name := range []string{
		"kcore", "keys", "key-users", "latency_stats", "timer_list", "timer_stats", "sched_debug", "cmdline", "diskstats", "acpi", "asound", "scsi",
	} {
		var st unix.Stat_t
		path := proc + "/" + name
		switch err := unix.Stat(path, &st); {
		case errors.Is(err, unix.ENOENT):
			continue
		case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
			err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|diskFlags, "size=0,nr_inodes=2,mode=0555")
			if err != nil {
				return fmt.Errorf("mask %s: %w", name, err)
			}
		default:
			if err := unix.Mount("/"+boxRoot+"/dev/null", path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mask %s: %w", name, err)
			}
		}
	}
	for _, name := range []string{"bus", "fs", "irq", "sys", "sysrq-trigger"} {
		path := proc + "/" + name
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: readOnly | unix.MOUNT_ATTR_NOEXEC})
		}
		if err != nil {
			return fmt.Errorf("protect %s: %w", name, err)
		}
	}
	return nil
}
