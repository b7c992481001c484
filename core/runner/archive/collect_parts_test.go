//go:build linux

package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
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
	c.Layered = true // the overlay gives a file another inode
	for _, now := range []FileID{{9, 2, was.time}, {9, 3, was.time}} {
		if got, want := c.wanted("f", unix.Stat_t{Ino: now.ino, Size: now.size, Mtim: now.time}), now.size != was.size; got != want {
			t.Errorf("%+v in an overlay: changed %v", now, got)
		}
	}
	for name, want := range map[string]bool{"__pycache__/a": false, "b/__pycache__/a": false, "b/__pycache__/c/a": false, "my__pycache__/a": true, "b/__pycache__": true} {
		if got := c.wanted(name, unix.Stat_t{}); got != want {
			t.Errorf("the new file %s: changed %v", name, got)
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

func TestArtifactsAreBoundedInNumberAndInNames(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"a": "", "b": ""})
	for name, c := range map[string]*Collector{"artifacts": {count: maxArtifacts - 1}, "names": {names: executor.MaxArtifactNames - 1}} {
		c.Want = wantAll(t).Want
		got := collectFrom(t, dir, c, nil)
		if got.paths() != "a" || got.failure == nil || got.failure.Code != executor.Exhausted || !strings.Contains(got.failure.Message, name) {
			t.Errorf("%s: got %s, %+v", name, got.paths(), got.failure)
		}
	}
}

func TestEachArtifactHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	var c Collector
	for _, test := range [][2]string{{"a\xff", "a\uFFFD"}, {"a\xfe", "a\uFFFD~2"}, {"a\uFFFD~2", "a\uFFFD~2~2"}, {"a\xfd", "a\uFFFD~3"}, {"b", "b"}} {
		if got := c.uniqueName(test[0]); got != test[1] {
			t.Errorf("%q became %q, want %q", test[0], got, test[1])
		}
	}
}

// A tar has whole seconds.
func TestTheTimeOfAnArtifactHasNoFraction(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"a": ""})
	at := time.Unix(1_600_000_000, 900_000_000)
	must(t, os.Chtimes(filepath.Join(dir, "a"), at, at))
	if h := collectFrom(t, dir, wantAll(t), nil).headers; len(h) != 1 || !h[0].ModTime.Equal(time.Unix(1_600_000_001, 0)) {
		t.Errorf("got %+v", h)
	}
}
