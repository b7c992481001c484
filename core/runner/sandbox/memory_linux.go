package sandbox

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The pauses between two looks of a MemoryBound.
const (
	shortPause = 5 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// A killed process has endLooks looks to end, and settleLooks more until its memory is not charged any more. Processes that exit by
// themselves have exitLooks looks together. The looks are a millisecond apart.
const (
	endLooks    = 1000
	settleLooks = 5
	exitLooks   = 200
)

// bytesPerPause is how much memory programs can take in a shortPause.
const bytesPerPause = 40 << 20

// What the kernel needs per file in a tmpfs, and for the pages of its content.
const (
	bytesPerFile = 1536
	pageOverhead = 256 // one byte for that many
)

// MemoryBound holds programs to Limits.MemoryBytes without their files. The kernel charges files in a tmpfs to the control
// group of the program that writes them, so the limit of the group is MemoryBytes + DiskBytes. A MemoryBound looks at the group
// while programs run. It kills the largest process when they hold too much, as the kernel does at its own limit.
type MemoryBound struct {
	limit, disk int64
	disks       []string // folders in the tmpfs whose files do not count
	group       *Group
	// self reports that the runner is in the group itself, as in a container.
	self bool

	kills   atomic.Int64
	wasFull atomic.Bool
	nudge   chan struct{}
	// first begins run with the first look. Most programs end before it.
	first   *time.Timer
	stopped chan struct{}
	done    chan struct{}

	// The following belong to the goroutine of run.
	// usage, stat and kernel are control files. kernel is nil on v2, where stat has it all.
	usage, stat, kernel *os.File
	// statm is this process's, if self is true; else nil.
	statm  *os.File
	pause  time.Duration
	last   int64
	victim int // the process that was ended last, while it may live
	spare  int // how many looks may still find too much before another process is ended
	// stubborn reports that the process that was killed last has not ended in time.
	stubborn bool
	// patience is how many looks may still find processes that exit by themselves before another process is killed.
	patience int
	// exiting has those that did when there was first too much. While one of them works on its end, or waits for a processor, looks cost
	// no patience: on a busy machine an end takes as long as the processor is away. nil before the first.
	exiting map[int]processMemory
}

// GroupLimits returns the limits of a control group for programs with limits. A tmpfs with a limit of its own needs room in it.
func GroupLimits(cfg protocol.Config, limits executor.Limits) executor.Limits {
	if cfg.Tmpfs && limits.MemoryBytes > 0 && limits.DiskBytes > 0 {
		limits.MemoryBytes += limits.DiskBytes
	}
	return limits
}

// Bound holds programs in g, whose files lie in f, to limits, until End. It does nothing where the kernel's own limit does that, or
// where the control files cannot be read. It may return nil then.
func (b *Sandbox) Bound(g *Group, f *Folder, limits executor.Limits) *MemoryBound {
	if limits.MemoryBytes <= 0 || limits.DiskBytes <= 0 || g.Memory == "" {
		return nil
	}
	m := &MemoryBound{
		limit: limits.MemoryBytes, disk: limits.DiskBytes, disks: f.Disks(b.Config), group: g,
		self: g.Everything, nudge: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{}), patience: exitLooks,
	}
	if len(m.disks) == 0 {
		return nil
	}
	m.first = time.AfterFunc(m.next(0), m.run)
	return m
}

// open opens the control files. It reports whether there is something to do.
func (b *MemoryBound) open() bool {
	dir, files := b.group.Memory, memoryFilesOf(b.group.v2)
	b.stat = keepControl(dir, "memory.stat", unix.O_RDONLY)
	b.usage = keepControl(dir, files.now, unix.O_RDONLY)
	if !b.group.v2 {
		b.kernel = keepControl(dir, "memory.kmem.usage_in_bytes", unix.O_RDONLY)
	}
	if b.self {
		b.statm = keepControl("/proc/self", "statm", unix.O_RDONLY)
	}
	return b.stat != nil && b.usage != nil && number(dir, files.limit) > b.limit
}

// End stops b. What it has counted can still be read.
func (b *MemoryBound) End() {
	if b == nil || IsClosed(b.stopped) {
		return
	}
	close(b.stopped)
	if !b.first.Stop() {
		<-b.done
	}
}

func (b *MemoryBound) close() {
	for _, f := range []*os.File{b.usage, b.stat, b.kernel, b.statm} {
		if f != nil {
			_ = f.Close() // read only
		}
	}
}

// Soon makes the next look come soon. It is called when a program begins to work.
func (b *MemoryBound) Soon() {
	if b == nil {
		return
	}
	select {
	case b.nudge <- struct{}{}:
	default:
	}
}

// Killed returns how many processes b has killed.
func (b *MemoryBound) Killed() int64 {
	if b == nil {
		return 0
	}
	return b.kills.Load()
}

// Full reports whether a look since the last call has found the disk full.
func (b *MemoryBound) Full() bool { return b != nil && b.wasFull.Swap(false) }

func (b *MemoryBound) run() {
	defer close(b.done)
	defer b.close()
	if !b.open() {
		return
	}
	timer := time.NewTimer(b.look())
	defer timer.Stop()
	for {
		select {
		case <-b.stopped:
			return
		case <-b.nudge:
			b.pause = 0
			timer.Reset(b.headroom(b.last))
		case <-timer.C:
			timer.Reset(b.look())
		}
	}
}

// look kills a process if that is needed, and returns the time until the next look.
func (b *MemoryBound) look() time.Duration {
	used := ReadDiskUse(b.disks)
	if used.Full {
		b.wasFull.Store(true)
	}
	now := parseNumber(readControl(b.usage))
	if now <= b.limit {
		b.victim, b.spare = 0, 0
		b.waitAnew()
		return b.next(now)
	}
	if b.victim != 0 {
		m := memoryOf(b.victim)
		switch {
		case m.runs:
			return time.Millisecond
		case b.spare > 0 && (m.held || m.leaving):
			b.spare--
			return time.Millisecond
		}
		b.stubborn = m.held
		b.victim, b.spare = 0, settleLooks
	}
	held, over := b.held(used)
	if over && b.spare > 0 { // what the last one held may still be on its way back
		b.spare--
		return time.Millisecond
	}
	if over {
		b.kill(func() bool {
			_, still := b.held(ReadDiskUse(b.disks))
			return still
		})
		return time.Millisecond
	}
	b.waitAnew()
	return b.next(held)
}

// waitAnew forgets for which processes that exit b has waited.
func (b *MemoryBound) waitAnew() { b.patience, b.exiting = exitLooks, nil }

// next returns the time until the next look when programs hold that many bytes. It grows while that number does not change.
func (b *MemoryBound) next(held int64) time.Duration {
	idle := held-b.last < 1<<16 && b.last-held < 1<<16
	b.last = held
	quick := b.headroom(held)
	if !idle || b.pause == 0 {
		b.pause = quick
	} else {
		b.pause = min(max(2*b.pause, quick), longPause)
	}
	return b.pause
}

// headroom estimates how long programs need at least to reach the limit.
func (b *MemoryBound) headroom(held int64) time.Duration {
	pauses := max(b.limit-held, 0) / bytesPerPause
	return min(max(time.Duration(pauses)*shortPause, shortPause), longPause)
}

// held returns what programs hold without their files, and whether that is too much. Caches that the kernel can empty do not
// count.
//
// memory.stat may show for two seconds what a process held that is gone (the kernel sums it up late: mem_cgroup_flush_stats). The usage
// of the group is exact, so programs hold at most the usage and what is swapped, without files and caches.
func (b *MemoryBound) held(used DiskUse) (held int64, over bool) {
	files := min(used.bytes, b.disk)
	overhead := used.files*bytesPerFile + files/pageOverhead
	stat := parseStat(readControl(b.stat), b.group.v2)
	held = stat.anonymous + max(stat.shared-files, 0)
	if b.group.v2 {
		held += max(stat.kernel-overhead, 0)
	}
	held = min(held, max(parseNumber(readControl(b.usage))+stat.swapped-files-stat.cached, 0)) - b.ownMemory()
	if b.group.v2 {
		return held, held > b.limit
	}
	if held > b.limit {
		return held, true
	}
	// v1 does not tell how much of the kernel's memory it can empty. Only asking the kernel to do so shows it.
	kernel := max(parseNumber(readControl(b.kernel))-overhead, 0)
	if kernel == 0 || held+kernel <= b.limit || b.group.watched != nil {
		return held, false
	}
	return held, !b.shrinks(overhead)
}

// shrinks reports whether the kernel can empty its caches until the group is within the limit.
func (b *MemoryBound) shrinks(overhead int64) bool {
	const tries, slack = 3, 1 << 20
	limit := strconv.FormatInt(b.limit+b.disk, 10)
	for range tries {
		files := min(ReadDiskUse(b.disks).bytes, b.disk)
		err := writeGroup(b.group.Memory, "memory.limit_in_bytes", strconv.FormatInt(min(b.limit+files+overhead+slack, b.limit+b.disk), 10))
		_ = writeGroup(b.group.Memory, "memory.limit_in_bytes", limit) // it was so before
		if err == nil {
			return true
		}
	}
	return false
}

// ownMemory returns the memory of the runner, if it is in the group.
func (b *MemoryBound) ownMemory() int64 {
	if b.statm == nil {
		return 0
	}
	f := bytes.Fields(readControl(b.statm))
	if len(f) < 3 {
		return 0
	}
	return (parseNumber(f[1]) - parseNumber(f[2])) * int64(os.Getpagesize())
}

// kill kills the process with the most memory, or all of them where killing one did not help. While processes exit by themselves, kill
// waits for their memory, for b.patience looks. still reports whether there is too much memory. It is called when the process has been
// chosen, because the one that held the memory may have ended before.
func (b *MemoryBound) kill(still func() bool) {
	largest, most := 0, int64(0)
	leaving := map[int]processMemory{}
	all := b.group.processes()
	for _, pid := range all {
		m := memoryOf(pid)
		if m.resident > most {
			largest, most = pid, m.resident
		}
		if m.leaving {
			leaving[pid] = m
		}
	}
	if b.waits(leaving) || largest == 0 || !still() {
		return
	}
	b.victim, b.spare = largest, endLooks
	// The count comes first, because the end of the process may be seen at once.
	b.kills.Add(1)
	_ = unix.Kill(b.victim, unix.SIGKILL) // it may be gone already
	if b.stubborn {                       // a tracer can hold it
		for _, pid := range all {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// waits reports whether there is patience with processes that exit.
func (b *MemoryBound) waits(leaving map[int]processMemory) bool {
	if b.exiting == nil {
		b.exiting = leaving
	}
	for pid, m := range leaving {
		if _, first := b.exiting[pid]; first && m.runs {
			return true
		}
	}
	b.patience--
	return len(leaving) > 0 && b.patience >= 0
}

// processes lists the processes of g, except this one.
func (g *Group) processes() []int {
	if g.Everything {
		return (&Sandbox{}).Descendants()
	}
	self := os.Getpid()
	return slices.DeleteFunc(groupPIDs(g.Memory), func(pid int) bool { return pid == self })
}

// memoryStat is the content of a memory.stat, in bytes.
type memoryStat struct {
	anonymous, shared int64
	swapped           int64 // part of anonymous, but not of the usage; v1 only
	cached            int64 // of files that are not shared
	kernel            int64 // that cannot be emptied; v2 only
}

func parseStat(raw []byte, v2 bool) memoryStat {
	values := map[string]int64{}
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) == 2 {
			values[string(f[0])] = parseNumber(f[1])
		}
	}
	if !v2 {
		return memoryStat{
			anonymous: values["total_rss"] + values["total_swap"], shared: values["total_shmem"],
			swapped: values["total_swap"], cached: max(values["total_cache"]-values["total_shmem"], 0),
		}
	}
	s := memoryStat{anonymous: values["anon"], shared: values["shmem"], cached: max(values["file"]-values["shmem"], 0)}
	if all, ok := values["kernel"]; ok { // from Linux 5.18 on
		s.kernel = all - values["slab_reclaimable"]
	} else {
		s.kernel = values["kernel_stack"] + values["pagetables"] + values["slab_unreclaimable"]
	}
	s.kernel += values["sock"]
	return s
}

// DiskUse is what is used of one or more tmpfs.
type DiskUse struct {
	bytes, files int64
	Full         bool // one of them
}

func ReadDiskUse(disks []string) (u DiskUse) {
	for _, dir := range disks {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil || st.Type != unix.TMPFS_MAGIC {
			continue
		}
		u.bytes += int64(st.Blocks-st.Bfree) * st.Bsize //nolint:gosec // at most the machine's memory
		u.files += int64(st.Files - st.Ffree)           //nolint:gosec // likewise
		u.Full = u.Full || st.Blocks > 0 && st.Bfree == 0 || st.Files > 0 && st.Ffree == 0
	}
	return u
}

// Disks returns folders of the tmpfs that hold f's files. There are none where the machine's disk does.
func (f *Folder) Disks(cfg protocol.Config) []string {
	switch {
	case f.Disk != nil:
		return []string{inside(f.Disk.tmpfs, "")}
	case f.keep:
		return append([]string{f.Path, f.Temp}, cfg.Disks...)
	}
	return nil
}
