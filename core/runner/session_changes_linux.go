package runner

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
)

const (
	// maxSeen is the most files of a session that are remembered, and maxSeenBytes the most of their paths together. Beyond it
	// the time of a file says whether it was changed.
	maxSeen      = 2000
	maxSeenBytes = 1 << 20
	// clockSlack is how much earlier than a moment the kernel may date a file that was written in it: its clock ticks.
	clockSlack = 20 * time.Millisecond
)

// seenFiles are a session's files as they were when an Execution last asked for them (Start.FilesChanged).
type seenFiles struct {
	// at is the time before they were looked at; zero: nobody has asked.
	at time.Time
	// files by path; nil: they are too many to remember, or nobody has asked.
	files map[string]seenFile
}

type seenFile struct {
	size     int64
	modified unix.Timespec
	// changed is when the kernel last touched it: a program cannot set it.
	changed unix.Timespec
}

// look returns the files of the session that may be shown, in no order. whole is false where they are too many to look at.
func (s *session) look() (found map[string]seenFile, whole bool) {
	l := looker{root: s.root, found: map[string]seenFile{}}
	whole = l.folder(s.folder.fd(), ".", "", 0)
	return l.found, whole
}

// looker goes through a work folder. It follows no link to a folder.
type looker struct {
	root  *os.Root
	found map[string]seenFile
	count int
}

// folder looks into the folder base of at; it reports false when there is too much in it.
func (l *looker) folder(at int, base, prefix string, depth int) bool {
	fd, err := openDir(at, base)
	if err != nil {
		return true // it went while we looked, or nobody may read it
	}
	dir := os.NewFile(uintptr(fd), "folder") //nolint:gosec // a descriptor
	defer dir.Close()                        //nolint:errcheck // read only
	names, err := dir.Readdirnames(maxListed + 1)
	if err != nil && err != io.EOF { //nolint:errorlint // it is that
		return true
	}
	if l.count += len(names); l.count > maxListed {
		return false
	}
	for _, base := range names {
		if strings.HasPrefix(base, ".") || base == "__pycache__" {
			continue // what tools keep for themselves
		}
		st, err := lstat(fd, base)
		if err != nil {
			continue // it went
		}
		name := path.Join(prefix, base)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			l.found[name] = seenFile{st.Size, st.Mtim, st.Ctim}
		case unix.S_IFLNK:
			l.link(name)
		case unix.S_IFDIR:
			if depth < maxDepth && !l.folder(fd, base, name, depth+1) {
				return false
			}
		}
	}
	return true
}

// link takes a link as what it leads to, if that is a file in the folder.
func (l *looker) link(name string) {
	info, err := l.root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		l.found[name] = seenFile{st.Size, unix.Timespec(st.Mtim), unix.Timespec(st.Ctim)}
	}
}

// remember keeps what was found by a look that began at.
func (s *seenFiles) remember(at time.Time, found map[string]seenFile, whole bool) {
	bytes := 0
	for name := range found {
		bytes += len(name)
	}
	if s.at, s.files = at, found; !whole || len(found) > maxSeen || bytes > maxSeenBytes {
		s.files = nil
	}
}

// isNew reports whether a file was made or changed since.
func (s *seenFiles) isNew(name string, now seenFile) bool {
	if s.files == nil {
		return !time.Unix(now.changed.Unix()).Before(s.at.Add(-clockSlack))
	}
	old, known := s.files[name]
	return !known || old.size != now.size || old.modified != now.modified
}

// seeFiles looks at the files before the first Execution that asks what it changed: what is there already is not new.
func (s *session) seeFiles() {
	if s.seen.at.IsZero() {
		at := time.Now()
		found, whole := s.look()
		s.seen.remember(at, found, whole)
	}
}

// filesChanged names what was made or changed since the last time, and remembers it. omitted counts what is too much to name.
func (s *session) filesChanged() (list []executor.Artifact, omitted int64) {
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
	if n := len(list) - executor.MaxFilesChanged; n > 0 {
		list, omitted = slices.Clone(list[:executor.MaxFilesChanged]), int64(n)
	}
	return list, omitted
}
