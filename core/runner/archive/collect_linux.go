package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// maxArtifacts bounds the files that one Execution may keep.
const maxArtifacts = 10_000

// FileID tells whether a file was changed.
type FileID struct {
	ino  uint64
	size int64
	time unix.Timespec
}

// Walk walks a folder in the order of the paths and follows no link. It leaves out what goes, or becomes something else,
// meanwhile.
type Walk struct {
	// skip, if not nil, reports whether to leave out a folder.
	skip func(dir string) bool
	// Visit is called for every regular file. at is the open folder that has it under the name base.
	Visit func(at int, base, name string, st unix.Stat_t) error
	// unread, if not nil, is called for each folder that cannot be read.
	unread func(dir string, err error)
}

// Files walks root. The error is Visit's, or root itself cannot be read.
func (w *Walk) Files(root int) error {
	entries, err := readFolder(root)
	if err != nil {
		return err
	}
	return w.entries(root, entries, "", 0)
}

func (w *Walk) entries(dir int, entries []fs.DirEntry, prefix string, depth int) error {
	for _, e := range entries {
		name := path.Join(prefix, e.Name())
		st, err := Lstat(dir, e.Name())
		if err != nil {
			continue // it went
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			err = w.Visit(dir, e.Name(), name, st)
		case unix.S_IFDIR:
			if depth < MaxDepth && (w.skip == nil || !w.skip(name)) {
				err = w.folder(dir, e.Name(), name, depth+1)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Walk) folder(at int, base, name string, depth int) error {
	fd, err := openUsable(at, base)
	switch {
	case isGone(err), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		w.tell(name, err)
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	entries, err := readFolder(fd)
	if err != nil {
		w.tell(name, err)
		return nil
	}
	return w.entries(fd, entries, name, depth)
}

func (w *Walk) tell(name string, err error) {
	if w.unread != nil {
		w.unread(name, err)
	}
}

// isGone reports whether an open without following links failed because the entry is gone or is a link now.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) }

// readFolder returns the entries of an open folder, sorted by name. A folder that was removed has none.
func readFolder(dir int) ([]fs.DirEntry, error) {
	f, err := openAgain(dir)
	if err == nil {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(-1)
		if err = errors.Join(err, f.Close()); err == nil {
			slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
			return entries, nil
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return nil, err
}

// skipForChanges reports whether dir has what programs write besides their work.
func skipForChanges(dir string) bool {
	return path.Base(dir) == "__pycache__"
}

// Snapshot returns the files that exist before the program starts.
func Snapshot(root int) (map[string]FileID, error) {
	seen := map[string]FileID{}
	w := Walk{skip: skipForChanges, Visit: func(_ int, _, name string, st unix.Stat_t) error {
		seen[name] = FileID{st.Ino, st.Size, st.Mtim}
		return nil
	}}
	return seen, w.Files(root)
}

// Update makes seen, a Snapshot, have the file name of the folder root as it is now, if it is a regular file of that size.
func Update(root int, seen map[string]FileID, name string, size int64) {
	var st unix.Stat_t
	if unix.Fstatat(root, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == size {
		seen[name] = FileID{st.Ino, st.Size, st.Mtim}
	}
}

// Collector sends the files that Start asks to keep. No process of the program is alive.
type Collector struct {
	Out    *protocol.Writer
	Credit *protocol.Credit
	Want   Globs
	// Before is the snapshot for OutputsChanged; nil without it.
	Before map[string]FileID
	// Layered reports that the folder is an overlay, in which a file has another inode once it was opened for writing.
	Layered  bool
	MaxBytes int64
	// Budget is a bound of the server, besides MaxBytes; 0: none.
	Budget int64

	count int
	bytes int64
	names int
	// sent are the names so far, with the number of files that had each.
	sent   map[string]int
	faults faults
}

// errBound ends a collection that has reached a bound. What was sent stays.
type errBound struct{ message string }

func (e *errBound) Error() string { return e.message }

// maxFaults bounds the files that a Failure names.
const maxFaults = 10

// faults are the files that could not be collected as they are.
type faults struct {
	named []string
	more  int
}

func (f *faults) add(format string, args ...any) {
	if len(f.named) == maxFaults {
		f.more++
		return
	}
	f.named = append(f.named, fmt.Sprintf(format, args...))
}

// failure returns a Failure that names the files, or nil.
func (f *faults) failure() *executor.Failure {
	if len(f.named) == 0 {
		return nil
	}
	message := strings.Join(f.named, "; ")
	if f.more > 0 {
		message += fmt.Sprintf("; and %d more files", f.more)
	}
	return &executor.Failure{Code: executor.Conflict, Phase: executor.PhaseCollect, Message: message}
}

// Collect sends the files. It returns the Failure that tells what was not collected as it is, or nil. The error is the
// connection's.
func (c *Collector) Collect(root int) (*executor.Failure, error) {
	w := Walk{
		Visit: func(at int, base, name string, st unix.Stat_t) error {
			if !c.wanted(name, st) {
				return nil
			}
			return c.send(at, base, name)
		},
		unread: func(dir string, err error) { c.faults.add("the folder %q cannot be read: %s", dir, WithoutPath(err)) },
	}
	err := w.Files(root)
	f := c.faults.failure()
	var bound *errBound
	if errors.As(err, &bound) {
		if f != nil {
			bound.message += "; " + f.Message
		}
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseCollect, Message: bound.message}, nil
	}
	return f, err
}

func (c *Collector) wanted(name string, st unix.Stat_t) bool {
	if c.Want.match(name) {
		return true
	}
	if c.Before == nil || strings.Contains("/"+name, "/__pycache__/") { // as skipForChanges
		return false
	}
	old, ok := c.Before[name]
	if c.Layered {
		old.ino = st.Ino
	}
	return !ok || old != FileID{st.Ino, st.Size, st.Mtim}
}

// send sends one file. It leaves out what is not a regular file any more.
func (c *Collector) send(at int, base, name string) error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := OpenAt(at, base, flags, 0)
	if errors.Is(err, unix.EACCES) && permit(at, base, unix.S_IFREG, 0o600) == nil {
		fd, err = OpenAt(at, base, flags, 0)
	}
	switch {
	case isGone(err), errors.Is(err, unix.ENXIO):
		return nil
	case err != nil:
		c.faults.add("%q cannot be read: %s", name, err)
		return nil
	}
	f := os.NewFile(uintptr(fd), base) //nolint:gosec // a descriptor
	defer f.Close()                    //nolint:errcheck // read only
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil //nolint:nilerr // it is no file to keep
	}
	if c.count++; c.count > maxArtifacts {
		return &errBound{fmt.Sprintf("more than %d artifacts", maxArtifacts)}
	}
	if c.names += len(name); c.names > executor.MaxArtifactNames {
		return &errBound{fmt.Sprintf("the names of the artifacts are longer than %d bytes", executor.MaxArtifactNames)}
	}
	if c.MaxBytes > 0 && st.Size() > c.MaxBytes-c.bytes {
		return &errBound{"the artifacts exceed " + diskLimit(c.MaxBytes)}
	}
	if c.Budget > 0 && st.Size() > c.Budget-c.bytes {
		return &errBound{fmt.Sprintf("the artifacts must be at most %d bytes together (engine.max_artifact_bytes)", c.Budget)}
	}
	c.bytes += st.Size()
	return c.sendFile(f, protocol.ArtifactHeader{
		Path: c.uniqueName(name), Size: st.Size(), Mode: int64(st.Mode().Perm()), ModTime: EncodableTime(st.ModTime().Round(time.Second)),
	})
}

// EncodableTime returns t, or the zero time if JSON cannot represent t. A program may give its files a time of any year.
func EncodableTime(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// uniqueName returns name as valid UTF-8. It adds a number to names that become the same, because each artifact has its own
// name.
func (c *Collector) uniqueName(name string) string {
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	text := strings.ToValidUTF8(name, "\uFFFD")
	unique := text
	for c.sent[unique] > 0 {
		c.sent[text]++
		unique = fmt.Sprintf("%s~%d", text, c.sent[text])
	}
	c.sent[unique]++
	return unique
}

// sendFile sends as many bytes as the header has announced, because a receiver may have written that number into a tar. If the
// file turns out to be shorter, zeros follow.
func (c *Collector) sendFile(f io.Reader, h protocol.ArtifactHeader) error {
	if err := c.Out.SendJSON(protocol.FrameArtifact, h); err != nil {
		return err
	}
	buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer protocol.ChunkPool.Put(buf)
	var short error
	for left := h.Size; left > 0; {
		room, err := c.Credit.Take(int(min(left, protocol.ChunkBytes)))
		if err != nil {
			return err
		}
		data := (*buf)[protocol.HeaderBytes : protocol.HeaderBytes+room]
		n := 0
		if short == nil {
			if n, short = io.ReadFull(f, data); short != nil {
				c.faultOf(h, h.Size-left+int64(n), short)
			}
		}
		clear(data[n:])
		if err := c.Out.SendBuffer(protocol.FrameArtifactData, (*buf)[:protocol.HeaderBytes+room]); err != nil {
			return err
		}
		left -= int64(room)
	}
	if short == nil {
		if n, _ := f.Read((*buf)[:1]); n > 0 {
			c.faults.add("%q grew while it was collected: the artifact has its first %d bytes", h.Path, h.Size)
		}
	}
	return c.Out.Send(protocol.FrameArtifactEnd)
}

// faultOf returns the fault of a file of which only the first n bytes could be read.
func (c *Collector) faultOf(h protocol.ArtifactHeader, n int64, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.faults.add("%q shrank while it was collected: the artifact has %d bytes of it, and zeros up to %d bytes", h.Path, n, h.Size)
		return
	}
	c.faults.add("%q cannot be read from byte %d on: %s; the artifact has zeros from there up to %d bytes", h.Path, n, WithoutPath(err), h.Size)
}
