package watch

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// steps are changes of the file that must be seen one after another. seen is the text of the file after the last one.
func TestEveryWayToChangeTheFileIsSeen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		begin func(t *testing.T, dir string) (path string)
		steps []func(t *testing.T, dir string)
	}{
		{
			"written in place",
			func(t *testing.T, dir string) string { write(t, dir+"/c", "1"); return dir + "/c" },
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { write(t, dir+"/c", "2") },
				func(t *testing.T, dir string) { write(t, dir+"/c", "3") },
			},
		},
		{
			"replaced by a rename, twice, then written",
			func(t *testing.T, dir string) string { write(t, dir+"/c", "1"); return dir + "/c" },
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { write(t, dir+"/c.new", "2"); rename(t, dir+"/c.new", dir+"/c") },
				func(t *testing.T, dir string) { write(t, dir+"/c.new", "3"); rename(t, dir+"/c.new", dir+"/c") },
				func(t *testing.T, dir string) { write(t, dir+"/c", "4") },
			},
		},
		{
			"moved away as a backup, and made anew",
			func(t *testing.T, dir string) string { write(t, dir+"/c", "1"); return dir + "/c" },
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { rename(t, dir+"/c", dir+"/c~"); write(t, dir+"/c", "2") },
				func(t *testing.T, dir string) { write(t, dir+"/c", "3") },
			},
		},
		{
			"not there at first, with its folder",
			func(_ *testing.T, dir string) string { return dir + "/a/b/c" },
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { mkdir(t, dir+"/a/b"); write(t, dir+"/a/b/c", "1") },
				func(t *testing.T, dir string) { write(t, dir+"/a/b/c", "2") },
			},
		},
		{
			"a ConfigMap whose ..data is swapped",
			func(t *testing.T, dir string) string {
				mkdir(t, dir+"/..1")
				write(t, dir+"/..1/c", "1")
				link(t, "..1", dir+"/..data")
				link(t, "..data/c", dir+"/c")
				return dir + "/c"
			},
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) {
					mkdir(t, dir+"/..2")
					write(t, dir+"/..2/c", "2")
					link(t, "..2", dir+"/..tmp")
					rename(t, dir+"/..tmp", dir+"/..data")
				},
				func(t *testing.T, dir string) {
					mkdir(t, dir+"/..3")
					write(t, dir+"/..3/c", "3")
					link(t, "..3", dir+"/..tmp")
					rename(t, dir+"/..tmp", dir+"/..data")
				},
			},
		},
		{
			"a link to a file elsewhere that is written, and then points to another",
			func(t *testing.T, dir string) string {
				mkdir(t, dir+"/etc")
				mkdir(t, dir+"/srv")
				write(t, dir+"/srv/one", "1")
				write(t, dir+"/srv/two", "3")
				link(t, dir+"/srv/one", dir+"/etc/c")
				return dir + "/etc/c"
			},
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { write(t, dir+"/srv/one", "2") },
				func(t *testing.T, dir string) { link(t, "../srv/two", dir+"/new"); rename(t, dir+"/new", dir+"/etc/c") },
				func(t *testing.T, dir string) { write(t, dir+"/srv/two", "4") },
			},
		},
		{
			"edited in place below a linked folder, and then below a link of its own folder",
			func(t *testing.T, dir string) string {
				mkdir(t, dir+"/srv/conf/deep")
				write(t, dir+"/srv/conf/deep/c", "1")
				link(t, dir+"/srv/conf", dir+"/etc")
				return dir + "/etc/deep/c"
			},
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) { write(t, dir+"/srv/conf/deep/c", "2") },
				func(t *testing.T, dir string) { write(t, dir+"/etc/deep/c", "3") },
				func(t *testing.T, dir string) {
					rename(t, dir+"/srv/conf/deep", dir+"/srv/old")
					link(t, "../old", dir+"/srv/conf/deep")
				},
				func(t *testing.T, dir string) { write(t, dir+"/srv/old/c", "4") },
			},
		},
		{
			"a folder on the way that is replaced",
			func(t *testing.T, dir string) string {
				mkdir(t, dir+"/a/b")
				write(t, dir+"/a/b/c", "1")
				return dir + "/a/b/c"
			},
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) {
					mkdir(t, dir+"/new/b")
					write(t, dir+"/new/b/c", "2")
					rename(t, dir+"/a", dir+"/old")
					rename(t, dir+"/new", dir+"/a")
				},
				func(t *testing.T, dir string) { write(t, dir+"/a/b/c", "3") },
			},
		},
		{
			"deleted",
			func(t *testing.T, dir string) string { write(t, dir+"/c", "1"); return dir + "/c" },
			[]func(t *testing.T, dir string){
				func(t *testing.T, dir string) {
					if err := os.Remove(dir + "/c"); err != nil {
						t.Fatal(err)
					}
				},
				func(t *testing.T, dir string) { write(t, dir+"/c", "2") },
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := test.begin(t, dir)
			f, err := New(path, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for i, step := range test.steps {
				if file, err := filepath.EvalSymlinks(path); err == nil && !way(path)[file] {
					t.Fatalf("before step %d the watch knows %v and not %s", i+1, way(path), file)
				}
				step(t, dir)
				awaittest.Recv(t, fmt.Sprintf("a change by step %d", i+1), f.Changes())
			}
		})
	}
}

func TestOtherFilesOfTheFolderDoNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "c")
	write(t, path, "1")
	names := way(path)
	if !names[path] || !names[dir] || names[path+".swp"] {
		t.Errorf("the names are %v", names)
	}
	link(t, "loop", filepath.Join(dir, "loop"))
	if names := way(filepath.Join(dir, "loop", "x")); names[filepath.Join(dir, "loop", "x")] {
		t.Errorf("a loop leads to %v", names)
	}
}
