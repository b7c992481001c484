package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// maxArtifacts bounds how many files one Execution may keep.
const maxArtifacts = 10_000

// fileID is what tells whether a file was changed.
type fileID struct {
	ino  uint64
	size int64
	time unix.Timespec
}

// walk goes through a folder in the order of the paths and follows no link. What goes, or becomes something else, meanwhile is
// left out.
type walk struct {
	// skip reports whether a folder is left out; nil: none is.
	skip func(dir string) bool
	// visit is called for every regular file. at is the open folder that holds it under the name base.
	visit func(at int, base, name string, st unix.Stat_t) error
	// unread is told of each folder that cannot be read; may be nil.
	unread func(dir string, err error)
}

// files walks through root. An error is visit's, or says that root itself cannot be read.
func (w *walk) files(root int) error {
	entries, err := readFolder(root)
	if err != nil {
		return err
	}
	return w.entries(root, entries, "", 0)
}

func (w *walk) entries(dir int, entries []fs.DirEntry, prefix string, depth int) error {
	for _, e := range entries {
		name := path.Join(prefix, e.Name())
		st, err := lstat(dir, e.Name())
		if err != nil {
			continue // it went
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			err = w.visit(dir, e.Name(), name, st)
		case unix.S_IFDIR:
			if depth < maxDepth && (w.skip == nil || !w.skip(name)) {
				err = w.folder(dir, e.Name(), name, depth+1)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) folder(at int, base, name string, depth int) error {
	fd, err := openDir(at, base)
	if errors.Is(err, unix.EACCES) && permit(at, base, unix.S_IFDIR, 0o700) == nil {
		fd, err = openDir(at, base)
	}
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

func (w *walk) tell(name string, err error) {
	if w.unread != nil {
		w.unread(name, err)
	}
}

// isGone reports whether an open without following links failed because the entry went, or is a link now.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) }

// readFolder returns the entries of an open folder, sorted by name. A folder that was removed has none.
func readFolder(dir int) ([]fs.DirEntry, error) {
	again, err := openDir(dir, ".")                                    // a descriptor of its own: reading moves its offset
	if errors.Is(err, unix.EACCES) && unix.Fchmod(dir, 0o700) == nil { // our own uid's folder
		again, err = openDir(dir, ".")
	}
	if err == nil {
		var entries []fs.DirEntry
		f := os.NewFile(uintptr(again), "folder") //nolint:gosec // a descriptor
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

// permit gives the owner rights to an entry of our own uid, if it is of that kind. The descriptor and not the name decides
// what is changed: a program may put a link in its place at any time.
func permit(at int, base string, kind, mode uint32) error {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind {
		return unix.EPERM
	}
	// What was opened with O_PATH has no fchmod but by this name, which leads to what is open and nowhere else.
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), mode, 0)
}

// skipForChanges leaves out what programs write beside their work.
func skipForChanges(dir string) bool {
	return path.Base(dir) == "__pycache__"
}

// snapshot remembers the files that are there before the program starts.
func snapshot(root int) (map[string]fileID, error) {
	seen := map[string]fileID{}
	w := walk{skip: skipForChanges, visit: func(_ int, _, name string, st unix.Stat_t) error {
		seen[name] = fileID{st.Ino, st.Size, st.Mtim}
		return nil
	}}
	return seen, w.files(root)
}

// collector sends the files that the Start asked to keep. It runs when nothing of the program is alive any more.
type collector struct {
	out    *frameWriter
	credit *credit
	want   globs
	// before is the snapshot for OutputsChanged; nil without it.
	before   map[string]fileID
	maxBytes int64

	count int
	bytes int64
	// sent are the names so far, each with how often it was wanted.
	sent   map[string]int
	faults faults
}

// errBound ends a collection that reached a bound; what was sent stays.
type errBound struct{ message string }

func (e *errBound) Error() string { return e.message }

// maxFaults is how many files a Failure names.
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

// failure names the files; nil: there are none.
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

// collect returns the Failure that tells what was not collected as it is, or nil. The error is the connection's.
func (c *collector) collect(root int) (*executor.Failure, error) {
	w := walk{
		visit: func(at int, base, name string, st unix.Stat_t) error {
			if !c.wanted(name, st) {
				return nil
			}
			return c.send(at, base, name)
		},
		unread: func(dir string, err error) { c.faults.add("the folder %q cannot be read: %s", dir, bare(err)) },
	}
	err := w.files(root)
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

func (c *collector) wanted(name string, st unix.Stat_t) bool {
	if c.want.match(name) {
		return true
	}
	if c.before == nil || path.Base(path.Dir(name)) == "__pycache__" || strings.Contains(name, "__pycache__/") {
		return false
	}
	old, ok := c.before[name]
	return !ok || old != fileID{st.Ino, st.Size, st.Mtim}
}

// send sends one file. What is no regular file any more is left out, as one that came later would be.
func (c *collector) send(at int, base, name string) error {
	open := func() (int, error) {
		return ignoringEINTR(func() (int, error) {
			return unix.Openat(at, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		})
	}
	fd, err := open()
	if errors.Is(err, unix.EACCES) && permit(at, base, unix.S_IFREG, 0o600) == nil {
		fd, err = open()
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
	if c.maxBytes > 0 && st.Size() > c.maxBytes-c.bytes {
		return &errBound{fmt.Sprintf("the artifacts are larger than the disk limit of %d bytes", c.maxBytes)}
	}
	c.bytes += st.Size()
	return c.sendFile(f, artifactHeader{
		Path: c.uniqueName(name), Size: st.Size(), Mode: int64(st.Mode().Perm()), ModTime: sayable(st.ModTime().Round(time.Second)),
	})
}

// sayable is t, or zero (unknown) where JSON has no words for it: a program may give its files a time of any year.
func sayable(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// uniqueName is name as text. Names that are the same as text get a number: of one name there is one artifact.
func (c *collector) uniqueName(name string) string {
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

// sendFile sends as many bytes as the header has announced, whatever becomes of the file: a receiver may have written that
// number into a tar. Where the file turns out to be shorter, zeros follow.
func (c *collector) sendFile(f io.Reader, h artifactHeader) error {
	if err := c.out.json(frameArtifact, h); err != nil {
		return err
	}
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(buf)
	var short error
	for left := h.Size; left > 0; {
		room, err := c.credit.take(int(min(left, chunkBytes)))
		if err != nil {
			return err
		}
		data := (*buf)[frameHeader : frameHeader+room]
		n := 0
		if short == nil {
			if n, short = io.ReadFull(f, data); short != nil {
				c.faultOf(h, h.Size-left+int64(n), short)
			}
		}
		clear(data[n:])
		if err := c.out.framed(frameArtifactData, (*buf)[:frameHeader+room]); err != nil {
			return err
		}
		left -= int64(room)
	}
	if short == nil {
		if n, _ := f.Read((*buf)[:1]); n > 0 {
			c.faults.add("%q grew while it was collected: the artifact has its first %d bytes", h.Path, h.Size)
		}
	}
	return c.out.frame(frameArtifactEnd)
}

// faultOf names a file of which only the first n bytes could be read.
func (c *collector) faultOf(h artifactHeader, n int64, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.faults.add("%q shrank while it was collected: the artifact has %d bytes of it, and zeros up to %d bytes", h.Path, n, h.Size)
		return
	}
	c.faults.add("%q cannot be read from byte %d on: %s; the artifact has zeros from there up to %d bytes", h.Path, n, bare(err), h.Size)
}
