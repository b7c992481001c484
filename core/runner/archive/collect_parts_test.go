//go:build linux

package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file is another one when any of its inode, size and time is: a program may set the time.
func TestAFileIsChangedWhateverPartOfItIs(t *testing.T) {
	t.Parallel()
	was := FileID{ino: 1, size: 2, time: unix.Timespec{Sec: 3, Nsec: 4}}
	c := Collector{Before: map[string]FileID{"f": was, "__pycache__/f": {}}}
	for name, c2 := range map[string]struct {
		now  FileID
		want bool
	}{
		"the same":              {was, false},
		"another inode":         {FileID{9, 2, was.time}, true},
		"another size":          {FileID{1, 9, was.time}, true},
		"another second":        {FileID{1, 2, unix.Timespec{Sec: 9, Nsec: 4}}, true},
		"another part of it":    {FileID{1, 2, unix.Timespec{Sec: 3, Nsec: 9}}, true},
		"an earlier time of it": {FileID{1, 2, unix.Timespec{Sec: 1, Nsec: 4}}, true},
	} {
		if got := c.wanted("f", unix.Stat_t{Ino: c2.now.ino, Size: c2.now.size, Mtim: c2.now.time}); got != c2.want {
			t.Errorf("%s: changed %v", name, got)
		}
	}
}

// The depth is bounded as that of a workspace is: each folder on the way holds a descriptor.
func TestAWalkIsBoundedInDepth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deepest := filepath.Join(dir, strings.Repeat("d/", MaxDepth+5))
	must(t, os.MkdirAll(deepest, 0o700))
	for at, n := dir, 0; n < MaxDepth+5; n++ {
		at = filepath.Join(at, "d")
		must(t, os.WriteFile(filepath.Join(at, "f"), nil, 0o600))
	}
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	depth := 0
	w := Walk{Visit: func(_ int, _, name string, _ unix.Stat_t) error {
		depth = max(depth, strings.Count(name, "/"))
		return nil
	}}
	if err := w.Files(int(root.Fd())); err != nil || depth != MaxDepth {
		t.Errorf("it went to a depth of %d, want %d: %v", depth, MaxDepth, err)
	}
}
