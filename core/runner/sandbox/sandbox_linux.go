package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/network"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Sandbox is what a runner has for its whole life to run programs with.
type Sandbox struct {
	// Config is the host's. Its WorkRoot is the disk's own folder where there is a disk.
	Config protocol.Config
	// Inside is nil unless the runner is PID 1 of a container.
	Inside *Container
	// Disk holds the files of programs. It is nil without Config.Tmpfs.
	Disk *Disk
	// Box has the namespaces of programs. It is nil without Config.Box.
	Box *Box
	// EndFork kills the processes of a forked program. It is nil while none runs.
	EndFork atomic.Pointer[func() error]
	// Command is the argv of this program as the init of a box, without the folder.
	Command []string
	// Die ends the runner and everything in it because of an error that is its own.
	Die func(error)

	// plain is for programs with a network. With Config.PrivateNetwork it is made for the first of them.
	plain func() *Spawner
	empty *Spawner // in an empty network namespace; nil without Config.NetworkNamespace
	// outlet is the way out of the network namespace of plain's programs. It is nil without Config.PrivateNetwork.
	outlet atomic.Pointer[network.Network]
	// privateNetwork is that network namespace. It is there when outlet is.
	privateNetwork *os.File
	named          atomic.Int64
}

// Open makes what lives as long as the runner.
func (b *Sandbox) Open(cfg protocol.Config) error {
	if cfg.InNetworkNamespace {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	var err error
	switch {
	case cfg.Box && (!cfg.Tmpfs || cfg.UseWorkRoot):
		return errors.New("box: must come with tmpfs, and not with use_work_root")
	case cfg.Box:
		if b.Box, err = newBox(cfg, b.Command); err == nil {
			b.Disk, err = newBoxDisk(cfg, b.Box)
		}
	case cfg.Tmpfs && !cfg.UseWorkRoot:
		b.Disk, err = newDisk(cfg)
	}
	if err != nil {
		return err
	}
	if b.Disk != nil {
		cfg.WorkRoot = b.Disk.root
	}
	b.Config = cfg
	// The threads take milliseconds. The first Execution waits for them, Hello does not.
	b.plain = sync.OnceValue(func() *Spawner { return newSpawner(b, true) })
	if !cfg.PrivateNetwork {
		b.plain()
	}
	if cfg.Box || cfg.NetworkNamespace && !cfg.InNetworkNamespace {
		b.empty = newSpawner(b, false)
	}
	return nil
}

// Close ends the box and the way out. No program runs, and none will.
func (b *Sandbox) Close() error {
	if n := b.outlet.Load(); n != nil {
		n.Close()
		_ = b.privateNetwork.Close() // nothing was written
	}
	if b.Box == nil {
		return nil
	}
	return b.Box.Close()
}

// Spawner returns the spawner of programs that have a network, or that have none.
func (b *Sandbox) Spawner(network bool) *Spawner {
	if !network && b.empty != nil {
		return b.empty
	}
	return b.plain()
}

// ForgetConnections ends what programs have left of their connections, so that the next ones do not find it.
func (b *Sandbox) ForgetConnections() {
	if n := b.outlet.Load(); n != nil {
		n.Reset()
	}
}

// ownNetwork moves the calling thread into a new network namespace with a way out.
func (b *Sandbox) ownNetwork() error {
	ranges, err := network.ParseRanges(b.Config.NetworkOpen)
	if err != nil {
		return fmt.Errorf("network_open: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	n, err := network.Open(fd, network.Options{Ranges: ranges, Loopback: b.Config.NetworkLoopback, UID: b.Config.UID, GID: b.Config.GID})
	if err != nil {
		return fmt.Errorf("way out of the network namespace: %w", errors.Join(err, unix.Close(fd)))
	}
	b.privateNetwork = os.NewFile(uintptr(fd), "network namespace") //nolint:gosec // a descriptor
	b.outlet.Store(n)
	return nil
}

// enterNetwork moves the calling thread into the network of programs that have one.
func (b *Sandbox) enterNetwork() error {
	if !b.Config.PrivateNetwork {
		return nil // it is the runner's
	}
	s := b.plain()
	if <-s.ready; s.err != nil {
		return s.err
	}
	if err := unix.Setns(int(b.privateNetwork.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// MakePlace returns the work folder and the control groups for start. It takes of ready what fits, and makes the rest. Also
// after an error it returns what there is to remove; the folder may then be nil.
func (b *Sandbox) MakePlace(ready *Prepared, start protocol.Start) (*Folder, *Group, error) {
	f, err := ready.TakeFolder(start.Limits)
	if err == nil && f == nil {
		f, err = MakeFolder(b.Config, b.Disk, start.Limits.DiskBytes)
	}
	if err == nil {
		err = f.Reach(start)
	}
	if err == nil {
		err = b.Box.show(start.Limits.MemoryBytes)
	}
	if err == nil {
		err = f.linkCaches(b.Config, start.Caches)
	}
	if err != nil {
		return f, &Group{}, err
	}
	if g := ready.TakeGroup(start.Limits); g != nil {
		return f, g, nil
	}
	if err := ready.removeGroup(); err != nil { // nothing of the program may enter groups with other limits
		return f, &Group{}, err
	}
	g, err := MakeGroup(b.Config.Cgroups, b.GroupName(), GroupLimits(b.Config, start.Limits))
	return f, g, err
}

// GroupName returns a name for control groups that no others have.
func (b *Sandbox) GroupName() string { return "run-" + strconv.FormatInt(b.named.Add(1), 10) }

// Go runs f in a goroutine of its own.
func (b *Sandbox) Go(f func()) {
	go func() {
		defer b.Guard()
		f()
	}()
}

// Guard is deferred by every goroutine. A panic of the runner must not leave a program behind: the parent-death signal
// ends the program itself, but not its descendants.
func (b *Sandbox) Guard() {
	if r := recover(); r != nil {
		b.Die(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
	}
}

// NotePrefix begins the lines of Notef.
const NotePrefix = "runner: note: "

// Notef is Logf for what explains a choice and asks nobody to act.
func (b *Sandbox) Notef(format string, args ...any) {
	_, _ = unix.Write(2, fmt.Appendf(nil, NotePrefix+format+"\n", args...)) // without a reader it is lost
}

// Logf writes to standard error. It never waits.
func (b *Sandbox) Logf(format string, args ...any) {
	_, _ = unix.Write(2, fmt.Appendf(nil, "runner: "+format+"\n", args...)) // without a reader it is lost
}
