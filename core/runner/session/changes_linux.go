package session

import (
	"cmp"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

const (
	// maxSeen bounds the files of a session that are remembered, and maxSeenBytes their paths together. Beyond that, the time
	// of a file tells whether it was changed.
	maxSeen      = 2000
	maxSeenBytes = 1 << 20
	// maxLookBytes bounds the paths of one look. A file may lie below 200 folders with long names.
	maxLookBytes = 8 << 20
	// maxChangedBytes bounds the paths that one Result names. JSON may need six bytes for one byte.
	maxChangedBytes = 256 << 10
	// clockSlack is how much earlier than its writing the kernel may date a file. Its clock ticks.
	clockSlack = 20 * time.Millisecond
)

// seenFiles are a session's files when an Execution last asked for changes (Start.FilesChanged).
type seenFiles struct {
	// at is the time before the files were looked at. It is zero if no Execution has asked.
	at time.Time
	// files are by path. The map is nil if they are too many, or if no Execution has asked.
	files map[string]seenFile
}

type seenFile struct {
	size     int64
	modified unix.Timespec
	// changed is when the kernel last changed the file. A program cannot set it.
	changed unix.Timespec
}

// look returns the files of the session, without an order. whole is false if they are too many.
func (s *Session) look() (found map[string]seenFile, whole bool) {
	l := looker{root: s.root, found: map[string]seenFile{}}
	whole = l.folder(s.Folder.FD(), ".", "", 0)
	return l.found, whole
}

// looker walks a work folder. It follows no link to a folder.
type looker struct {
	root  *os.Root
	found map[string]seenFile
	count int
	bytes int
}

// folder walks the folder base of at. It reports false when there are too many files.
func (l *looker) folder(at int, base, prefix string, depth int) bool {
	fd, err := archive.OpenDir(at, base)
	if err != nil {
		return true // it has gone meanwhile, or cannot be read
	}
	dir := os.NewFile(uintptr(fd), "folder") //nolint:gosec // a descriptor
	defer dir.Close()                        //nolint:errcheck // read only
	names, err := dir.Readdirnames(protocol.MaxListed + 1)
	if err != nil && err != io.EOF { //nolint:errorlint // it is that
		return true
	}
	if l.count += len(names); l.count > protocol.MaxListed {
		return false
	}
	for _, base := range names {
		if strings.HasPrefix(base, ".") || base == "__pycache__" {
			continue // what tools keep for themselves
		}
		st, err := archive.Lstat(fd, base)
		if err != nil {
			continue // it went
		}
		name := path.Join(prefix, base)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			l.add(name, seenFile{st.Size, st.Mtim, st.Ctim})
		case unix.S_IFLNK:
			l.link(name)
		case unix.S_IFDIR:
			if depth < archive.MaxDepth && !l.folder(fd, base, name, depth+1) {
				return false
			}
		}
		if l.bytes > maxLookBytes {
			return false
		}
	}
	return true
}

func (l *looker) add(name string, file seenFile) {
	l.found[name] = file
	l.bytes += len(name)
}

// link adds a link as the file it leads to, if that is in the folder.
func (l *looker) link(name string) {
	info, err := l.root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		l.add(name, seenFile{st.Size, unix.Timespec(st.Mtim), unix.Timespec(st.Ctim)})
	}
}

// remember keeps what a look that began at has found.
func (s *seenFiles) remember(at time.Time, found map[string]seenFile, whole bool) {
	bytes := 0
	for name := range found {
		bytes += len(name)
	}
	if s.at, s.files = at, found; !whole || len(found) > maxSeen || bytes > maxSeenBytes {
		s.files = nil
	}
}

// isNew reports whether a file was made or changed since the last look.
func (s *seenFiles) isNew(name string, now seenFile) bool {
	if s.files == nil {
		return !time.Unix(now.changed.Unix()).Before(s.at.Add(-clockSlack))
	}
	old, known := s.files[name]
	return !known || old.size != now.size || old.modified != now.modified
}

// SeeFiles looks at the files before the first Execution that asks for changes. Files that are there already are not new.
func (s *Session) SeeFiles() {
	if s.seen.at.IsZero() {
		at := time.Now()
		found, whole := s.look()
		s.seen.remember(at, found, whole)
	}
}

// FilesChanged names what was made or changed since the last time, and remembers it. omitted counts files that are too many to
// name.
func (s *Session) FilesChanged() (list []executor.Artifact, omitted int64) {
	at := time.Now()
	found, whole := s.look()
	if whole {
		for name, file := range found {
			if s.seen.isNew(name, file) {
				list = append(list, executor.Artifact{Path: strings.ToValidUTF8(name, "\uFFFD"), SizeBytes: file.size})
			}
		}
	}
	s.seen.remember(at, found, whole)
	slices.SortFunc(list, func(a, b executor.Artifact) int { return cmp.Compare(a.Path, b.Path) })
	keep, bytes := min(len(list), executor.MaxFilesChanged), 0
	for i, f := range list[:keep] {
		if bytes += len(f.Path); bytes > maxChangedBytes {
			keep = i
			break
		}
	}
	return slices.Clone(list[:keep]), int64(len(list) - keep)
}
