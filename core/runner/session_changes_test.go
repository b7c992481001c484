//go:build linux

package runner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// changed runs start and says which files it is told of: paths with sizes, and how many more.
// The bounds of what a session remembers of its files.
const (
	filesSeen  = 2000
	clockTicks = 20 * time.Millisecond
)

func (r *sessionRunner) changed(tb testing.TB, start Start) string {
	tb.Helper()
	start.FilesChanged = true
	res, rec := r.run(tb, start, RunInput{})
	if res.Status != executor.StatusSucceeded {
		tb.Errorf("%s: %s, stderr %q", start.Code, describe(res), rec.stderr())
	}
	var list []string
	for _, f := range res.FilesChanged {
		list = append(list, fmt.Sprintf("%s %d", f.Path, f.SizeBytes))
	}
	if res.FilesOmitted > 0 {
		list = append(list, fmt.Sprintf("and %d", res.FilesOmitted))
	}
	return strings.Join(list, ", ")
}

func TestWhoAsksIsToldWhichFilesChanged(t *testing.T) {
	t.Parallel()
	r := openSession(t, pythonSession())
	r.wants(t, "import os, pathlib, threading, time\nopen('before', 'w').close()\n", "", "")
	for _, step := range []struct{ code, want string }{
		{"None", ""}, // what was there before somebody asked is not new
		{"pathlib.Path('a/b').mkdir(parents=True)\n_ = pathlib.Path('a/b/c.txt').write_text('1')", "a/b/c.txt 1"},
		{"None", ""},
		{"_ = pathlib.Path('a/b/c.txt').write_text('22')", "a/b/c.txt 2"},
		{"os.utime('a/b/c.txt', (1, 1))", "a/b/c.txt 2"},
		{"os.rename('a', 'd')", "d/b/c.txt 2"},
		{"os.remove('d/b/c.txt')", ""},
		// Hidden files, caches, what is no file and what leads out or nowhere is not shown.
		{"for p in ('.git/x', 'd/.y', 'd/__pycache__/z.pyc', '.cache/t'):\n    os.makedirs(os.path.dirname(p), exist_ok=True)\n    _ = pathlib.Path(p).write_text('1')", ""},
		{"os.mkfifo('fifo'); os.symlink('/etc/passwd', 'out'); os.symlink('nowhere', 'dangling'); os.symlink('d', 'folder'); os.symlink('loop', 'loop')", ""},
		// A link to a file is one, and changes with it.
		{"os.symlink('../before', 'd/link')", "d/link 0"},
		{"_ = pathlib.Path('before').write_text('333')", "before 3, d/link 3"},
		{"_ = pathlib.Path(os.fsencode('\\udcff.txt').decode('utf-8', 'surrogateescape')).write_text('1')", "\uFFFD.txt 1"},
		// Nobody may read the folder; the others are told.
		{"os.mkdir('locked'); _ = pathlib.Path('locked/x').write_text('1'); os.chmod('locked', 0); _ = pathlib.Path('open').write_text('1')", "open 1"},
		{"os.chmod('locked', 0o755); os.remove('locked/x')", ""},
		// What the background did is told by the one after.
		{"def later():\n    go.wait()\n    pathlib.Path('late').write_text('4444')\ngo = threading.Event()\nthread = threading.Thread(target=later)\nthread.start()", ""},
		{"go.set(); thread.join()", "late 4"},
	} {
		if got := strings.ReplaceAll(r.changed(t, cellOf(step.code)), "locked/x 1, ", ""); got != step.want { // root may read it
			t.Errorf("%s\ntold %q, want %q", step.code, got, step.want)
		}
	}
	if got := r.changed(t, beside("echo hi > by-command")); got != "by-command 3" {
		t.Errorf("a command: %q", got)
	}
	start := cellOf("_ = pathlib.Path('failed').write_text('1')\n1/0")
	start.FilesChanged = true
	if res, _ := r.run(t, start, RunInput{}); len(res.FilesChanged) != 1 || res.Status != executor.StatusFailed {
		t.Errorf("an error: %+v", res)
	}
	start = cellOf("_ = pathlib.Path('unasked').write_text('1')")
	if res, _ := r.run(t, start, RunInput{}); res.FilesChanged != nil {
		t.Errorf("nobody asked: %+v", res.FilesChanged)
	}
	if err := r.RestartSession(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := r.changed(t, cellOf("open('before', 'w').write('333')\nNone")); got != "before 3" {
		t.Errorf("after a wipe: %q", got)
	}
}

// TestFilesWithLongPathsAreTold makes a hundred files whose paths are together longer than a frame may be.
func TestFilesWithLongPathsAreTold(t *testing.T) {
	t.Parallel()
	r := openSession(t, pythonSession())
	if got := r.changed(t, cellOf("None")); got != "" {
		t.Errorf("nothing: %q", got)
	}
	got := r.changed(t, cellOf(deepFiles(100)))
	list := strings.Split(got, ", ")
	if len(list) != 5+1 || list[5] != "and 95" {
		t.Errorf("%d files, the last of which is %.100q", len(list), list[len(list)-1])
	}
	if got := r.changed(t, cellOf(strings.ReplaceAll(deepFiles(200), "\"d\"", "\"e\""))); got != "" {
		t.Errorf("more than is looked at: %.100q", got)
	}
	if got := r.changed(t, cellOf("import shutil\nos.system('rm -r d* e*')\nopen('few', 'w').close()")); !strings.HasSuffix(got, "few 0") {
		t.Errorf("few again: %.100q", got)
	}
}

func TestManyFilesAreTold(t *testing.T) {
	t.Parallel()
	r := openSession(t, pythonSession())
	many := func(from, to int) Start {
		return cellOf(fmt.Sprintf("import os\nfor n in range(%d, %d):\n    open(f'f{n:06}', 'w').close()\n", from, to))
	}
	if got := r.changed(t, cellOf("None")); got != "" {
		t.Errorf("nothing: %q", got)
	}
	got := r.changed(t, many(0, filesSeen+1))
	if list := strings.Split(got, ", "); len(list) != executor.MaxFilesChanged+1 || list[0] != "f000000 0" || list[len(list)-1] != fmt.Sprintf("and %d", filesSeen+1-executor.MaxFilesChanged) {
		t.Errorf("more than are remembered: %q", got)
	}
	// From here on their times say what changed: a program may set the one, but not the other.
	old := cellOf(fmt.Sprintf("import time\ntime.sleep(%f)\nopen('fresh', 'w').close()\nos.utime('fresh', (1, 1))\n", 3*clockTicks.Seconds()))
	_ = r.changed(t, old)
	old = cellOf(strings.ReplaceAll(old.Code, "fresh", "gnu"))
	if got := r.changed(t, old); got != "gnu 0" && got != "fresh 0, gnu 0" { // fresh may be as young as the last look
		t.Errorf("one more: %q", got)
	}
	if got := r.changed(t, many(filesSeen, protocol.MaxListed+1)); got != "" {
		t.Errorf("more than are looked at: %q", got)
	}
	if got := r.changed(t, cellOf(fmt.Sprintf("for n in range(10, %d):\n    os.remove(f'f{n:06}')\nopen('few', 'w').close()\ntime.sleep(%f)", protocol.MaxListed+1, 3*clockTicks.Seconds()))); got != "few 0" {
		t.Errorf("few again: %q", got)
	}
	if got := r.changed(t, cellOf("open('fewer', 'w').close()")); got != "fewer 0" {
		t.Errorf("they are remembered again: %q", got)
	}
}
