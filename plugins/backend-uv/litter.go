package uvbackend

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// publicFolders are those that every user of the host may write to. Programs are told to use TMPDIR in their own folder;
// some use these all the same.
func publicFolders() []string {
	folders := []string{"/tmp", "/var/tmp", "/dev/shm"}
	if own := os.TempDir(); own != folders[0] {
		folders = append(folders, own)
	}
	return folders
}

// litter tells cheaply whether a program can have left something in a public folder: such a folder has changed then.
type litter struct {
	looked time.Time
	seen   map[string]time.Time
}

// look remembers the folders before a program starts.
func (l *litter) look() {
	l.looked, l.seen = time.Now(), make(map[string]time.Time, 4)
	for _, dir := range publicFolders() {
		if info, err := os.Stat(dir); err == nil {
			l.seen[dir] = info.ModTime()
		}
	}
}

// possible reports whether a folder has changed since look, or so shortly before that its time stamp would not show it:
// file systems stamp with the kernel's tick, 10 ms at most.
func (l *litter) possible() bool {
	for dir, before := range l.seen {
		info, err := os.Stat(dir)
		if err != nil || !info.ModTime().Equal(before) || l.looked.Sub(before) < 20*time.Millisecond {
			return true
		}
	}
	return false
}

// removeLitter removes what a slot's programs left in the public folders. None of them is alive.
func removeLitter(uid int) {
	for _, dir := range publicFolders() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
				_ = os.RemoveAll(filepath.Join(dir, e.Name())) // best effort, and never through a link
			}
		}
	}
}
