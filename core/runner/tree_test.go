//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// unread is a Workspace that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("a Workspace that the runner has was read")
	return 0, os.ErrInvalid
}

func (unread) Close() error { return nil }

// sharedTree is a Workspace with what programs may change.
func sharedTree(t *testing.T) *bytes.Reader {
	t.Helper()
	hard := entry{&tar.Header{Typeflag: tar.TypeLink, Name: "other", Linkname: "folder/text"}, ""}
	list := makeTar(t, file("main.py", lookAndChange), file("folder/text", "text"), file("folder/same", "same"), file("touched", "same"), hard, link("link", "folder"))
	return bytes.NewReader(list.bytes(t))
}

// lookAndChange prints all that it finds, and then changes all that it can.
const lookAndChange = `
import os
for at, folders, names in sorted(os.walk(".")):
    for name in sorted(folders + names):
        path = os.path.join(at, name)
        st = os.lstat(path)
        print(path, oct(st.st_mode), st.st_uid == os.getuid(), st.st_nlink if name in ("text", "other") else "",
              int(st.st_mtime) if os.path.isfile(path) and not os.path.islink(path) else "")
print(open("link/text").read(), os.path.realpath("link"), os.getcwd(), os.listdir("/tmp"))
with open("folder/text", "a") as f: f.write("!")
assert open("other").read() == "text!" and os.path.samefile("other", "folder/text")
open("touched", "r+").close()
os.chmod("touched", 0o600)
os.rename("folder", "moved")
os.remove("link")
os.remove("main.py")
open("new", "w").write("new")
open("/tmp/new", "w").write("new")
os.mkdir("empty")
`

// TestExecutionsShareAWorkspace runs a program again and again in what was unpacked once. Each finds the same, and its changes are its
// own.
func TestExecutionsShareAWorkspace(t *testing.T) {
	needtest.NeedRoot(t)
	var cfg Config
	r := boxed(t, func(c *Config) { cfg = *c })
	kept := func() []string {
		names, err := filepath.Glob(filepath.Join(cfg.WorkRoot, "tree-*"))
		must(t, err)
		return names
	}
	start := python("")
	start.Fork, start.Outputs, start.OutputsChanged = "tests", nil, true
	_, rec := r.run(t, start, RunInput{Workspace: sharedTree(t)})
	want, files := rec.stdout(), rec.files
	if !strings.Contains(want, "text /work/folder /work []") || !slices.Equal(slices.Sorted(maps.Keys(files)), []string{"moved/same", "moved/text", "new", "other"}) {
		t.Fatalf("%s%s%v", want, rec.stderr(), files)
	}
	start.Tree = "owner digest"
	for i := range 4 {
		in := RunInput{Workspace: unread{t}}
		if i == 0 {
			in.Workspace = sharedTree(t)
		}
		res, rec := r.run(t, start, in)
		if got := rec.stdout(); got != want || describe(res) != "succeeded exit 0" || !maps.Equal(rec.files, files) {
			t.Errorf("run %d: %s %v\n%s%s%v\nwant\n%s%v", i, describe(res), res.Failure, got, rec.stderr(), rec.files, want, files)
		}
		if len(kept()) != 1 {
			t.Errorf("run %d: %v is kept", i, kept())
		}
	}
	// A program has the whole disk for what it writes.
	full := start
	full.Command, full.Interpreter, full.OutputsChanged = []string{"/bin/sh", "-c", "dd if=/dev/zero of=big bs=1M count=7 2>&1 && dd if=/dev/zero of=/tmp/big bs=1M count=2; cat folder/text"}, nil, false
	full.Limits.DiskBytes = 8 << 20
	_, rec = r.run(t, full, RunInput{Workspace: unread{t}})
	if got := rec.stdout() + rec.stderr(); !strings.Contains(got, "No space left") || !strings.HasSuffix(rec.stdout(), "text") {
		t.Errorf("a full disk: %s", got)
	}
	large := start
	large.Tree, large.Limits.DiskBytes = "owner large", 1<<45 // more than the machine's disk has
	for range 2 {                                             // the first removes what was kept after its answer
		r.run(t, large, RunInput{Workspace: sharedTree(t)})
	}
	if len(kept()) != 0 {
		t.Errorf("%v is kept", kept())
	}
	other := start
	other.Tree = "owner other"
	r.run(t, other, RunInput{Workspace: sharedTree(t)})
	r.run(t, start, RunInput{Workspace: sharedTree(t)})
	r.saysInBox(t, "import os; print(os.listdir())", "['main.py']")
	r.saysInBox(t, "print(1)", "1")
	if len(kept()) != 0 {
		t.Errorf("%v is kept", kept())
	}
}

// boxTree is the rule for those whose runner keeps nothing, too.
func boxTree(t *testing.T) {
	r := boxed(t, nil)
	start := python("")
	start.Tree = "owner digest"
	want := ""
	for range 3 {
		res, rec := r.run(t, start, RunInput{Workspace: sharedTree(t)})
		if got := rec.stdout(); describe(res) != "succeeded exit 0" || want != "" && got != want {
			t.Errorf("%s %v\n%s%s\nwant\n%s", describe(res), res.Failure, got, rec.stderr(), want)
		} else {
			want = got
		}
	}
}

// A Workspace that cannot be unpacked is not kept.
func TestABadWorkspaceIsNotShared(t *testing.T) {
	r := boxed(t, nil)
	start := python("")
	start.Tree = "owner digest"
	for range 2 {
		if res, _ := r.run(t, start, RunInput{Workspace: strings.NewReader("this is no tar archive")}); res.Failure == nil {
			t.Errorf("%+v", res)
		}
	}
	if _, rec := r.run(t, start, RunInput{Workspace: sharedTree(t)}); !strings.Contains(rec.stdout(), "text /work/folder") {
		t.Errorf("%s%s", rec.stdout(), rec.stderr())
	}
}
