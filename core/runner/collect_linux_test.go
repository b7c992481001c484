package runner

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// collected is what a collector has sent.
type collected struct {
	headers []artifactHeader
	data    map[string][]byte
	failure *executor.Failure
	err     error
}

// collectFrom collects the files of dir. change is called at each file's header, before anything of it is read.
func collectFrom(t *testing.T, dir string, c *collector, change func(artifactHeader)) collected {
	t.Helper()
	g := &gate{hold: func(p []byte) {
		var h artifactHeader
		if frameType(p[4]) == frameArtifact && change != nil && json.Unmarshal(p[frameHeader:], &h) == nil {
			change(h)
		}
	}}
	c.out, c.credit = &frameWriter{w: g}, newCredit(1<<40)
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // read only
	got := collected{data: map[string][]byte{}}
	got.failure, got.err = c.collect(int(root.Fd()))
	frames := newFrameReader(&g.written)
	for {
		kind, n, err := frames.header()
		if errors.Is(err, io.EOF) {
			return got
		}
		p, payloadErr := frames.payload(n)
		if err = errors.Join(err, payloadErr); err != nil {
			t.Fatal(err)
		}
		switch kind {
		case frameArtifact:
			var h artifactHeader
			if err := json.Unmarshal(p, &h); err != nil {
				t.Fatal(err)
			}
			got.headers = append(got.headers, h)
			got.data[h.Path] = nil
		case frameArtifactData:
			h := got.headers[len(got.headers)-1]
			got.data[h.Path] = append(got.data[h.Path], p...)
		case frameArtifactEnd:
			if h := got.headers[len(got.headers)-1]; int64(len(got.data[h.Path])) != h.Size {
				t.Errorf("%q: %d bytes, its header says %d", h.Path, len(got.data[h.Path]), h.Size)
			}
		default:
			t.Errorf("a frame of type %d", kind)
		}
	}
}

// paths are the artifacts' names.
func (c collected) paths() string {
	var all []string
	for _, h := range c.headers {
		all = append(all, h.Path)
	}
	return strings.Join(all, " ")
}

func wantAll(t *testing.T) *collector {
	t.Helper()
	want, err := parseGlobs([]string{"**"})
	if err != nil {
		t.Fatal(err)
	}
	return &collector{want: want}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeFiles makes files in a new folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := workRoot(t)
	for name, text := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func checkConflict(t *testing.T, f *executor.Failure, want ...string) {
	t.Helper()
	if f == nil || f.Code != executor.Conflict || f.Phase != executor.PhaseCollect {
		t.Errorf("failure %+v", f)
		return
	}
	for _, w := range want {
		if !strings.Contains(f.Message, w) {
			t.Errorf("%q says nothing of %q", f.Message, w)
		}
	}
}

func TestAFileThatChangesWhileItIsCollectedKeepsItsAnnouncedSize(t *testing.T) {
	const size = 3 * chunkBytes
	whole := strings.Repeat("a", size)
	for _, c := range []struct {
		name   string
		change func(file string) error
		want   string
		says   string
	}{
		{
			"it shrinks within its last chunk", func(f string) error { return os.Truncate(f, size-10) },
			whole[:size-10] + strings.Repeat("\x00", 10), fmt.Sprintf(`"b" shrank while it was collected: the artifact has %d bytes of it, and zeros up to %d bytes`, size-10, size),
		},
		{
			"it shrinks to a whole chunk", func(f string) error { return os.Truncate(f, chunkBytes) },
			whole[:chunkBytes] + strings.Repeat("\x00", size-chunkBytes), fmt.Sprintf("has %d bytes of it", chunkBytes),
		},
		{"it shrinks to nothing", func(f string) error { return os.Truncate(f, 0) }, strings.Repeat("\x00", size), "has 0 bytes of it"},
		{
			"it grows by a byte", func(f string) error { return appendTo(f, "x") }, whole,
			fmt.Sprintf(`"b" grew while it was collected: the artifact has its first %d bytes`, size),
		},
		{"it grows by a hole of a terabyte", func(f string) error { return os.Truncate(f, 1<<40) }, whole, `"b" grew`},
		{"it goes", os.Remove, whole, ""},
		{"another one takes its place", func(f string) error { return errors.Join(os.Remove(f), os.WriteFile(f, []byte("other"), 0o600)) }, whole, ""},
		{"it is closed to everybody", func(f string) error { return os.Chmod(f, 0) }, whole, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"a": "first", "b": whole, "c": "last"})
			got := collectFrom(t, dir, wantAll(t), func(h artifactHeader) {
				if h.Path == "b" {
					must(t, c.change(filepath.Join(dir, "b")))
				}
			})
			if got.err != nil || got.paths() != "a b c" || string(got.data["a"]) != "first" || string(got.data["c"]) != "last" {
				t.Errorf("%v, %s", got.err, got.paths())
			}
			if string(got.data["b"]) != c.want {
				t.Errorf("the artifact is not what was there, in its announced size")
			}
			if c.says != "" {
				checkConflict(t, got.failure, c.says)
			} else if got.failure != nil {
				t.Errorf("failure %+v", got.failure)
			}
		})
	}
	t.Run("an empty file grows", func(t *testing.T) {
		dir := writeFiles(t, map[string]string{"b": ""})
		got := collectFrom(t, dir, wantAll(t), func(artifactHeader) { must(t, appendTo(filepath.Join(dir, "b"), "x")) })
		if got.err != nil || got.paths() != "b" || len(got.data["b"]) != 0 {
			t.Errorf("%v, %s, %q", got.err, got.paths(), got.data["b"])
		}
		checkConflict(t, got.failure, "has its first 0 bytes")
	})
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func TestAFileThatCannotBeReadToItsEndIsPadded(t *testing.T) {
	g := &gate{}
	c := &collector{out: &frameWriter{w: g}, credit: newCredit(1 << 20)}
	must(t, c.sendFile(io.MultiReader(strings.NewReader("data"), failing{&os.PathError{Op: "read", Path: "/secret", Err: unix.EIO}}), artifactHeader{Path: "f", Size: 10}))
	checkConflict(t, c.faults.failure(), `"f" cannot be read from byte 4 on: input/output error; the artifact has zeros from there up to 10 bytes`)
	if !bytes.Contains(g.written.Bytes(), []byte("data\x00\x00\x00\x00\x00\x00\x00")) || strings.Contains(c.faults.failure().Message, "/secret") {
		t.Errorf("%q", g.written.Bytes())
	}
}

func TestManyFilesThatChangeAreCounted(t *testing.T) {
	files := map[string]string{}
	for i := range 25 {
		files[fmt.Sprintf("f%02d", i)] = "12345"
	}
	dir := writeFiles(t, files)
	got := collectFrom(t, dir, wantAll(t), func(h artifactHeader) { must(t, os.Truncate(filepath.Join(dir, h.Path), 2)) })
	checkConflict(t, got.failure, `"f00" shrank`, `"f09" shrank`, "; and 15 more files")
	if len(got.headers) != 25 || strings.Contains(got.failure.Message, "f10") {
		t.Errorf("%d artifacts, %s", len(got.headers), got.failure.Message)
	}
}

func TestWhatIsNoFileAnyMoreIsNoArtifact(t *testing.T) {
	for name, become := range map[string]func(string) error{
		"it goes":  os.Remove,
		"a folder": func(f string) error { return errors.Join(os.Remove(f), os.Mkdir(f, 0o700)) },
		"a FIFO":   func(f string) error { return errors.Join(os.Remove(f), unix.Mkfifo(f, 0o600)) },
		"a link":   func(f string) error { return errors.Join(os.Remove(f), os.Symlink("/etc/passwd", f)) },
		"a socket": func(f string) error { return errors.Join(os.Remove(f), unix.Mknod(f, unix.S_IFSOCK|0o600, 0)) },
		"a circle": func(f string) error { return errors.Join(os.Remove(f), os.Symlink("b", f)) },
		"the null device": func(f string) error {
			if !isRoot() {
				return os.Remove(f)
			}
			return errors.Join(os.Remove(f), unix.Mknod(f, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))) //nolint:gosec // a device
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"a": "first", "b": "second", "c": "last"})
			// When b has been looked at as a file, and before it is opened.
			must(t, become(filepath.Join(dir, "b")))
			root, err := os.Open(dir)
			must(t, err)
			defer root.Close() //nolint:errcheck // read only
			g := &gate{}
			c := &collector{out: &frameWriter{w: g}, credit: newCredit(1 << 20)}
			must(t, c.send(int(root.Fd()), "b", "b"))
			if got := g.types(t); len(got) > 0 || c.faults.failure() != nil || c.count != 0 {
				t.Errorf("frames of types %v, failure %+v", got, c.faults.failure())
			}
			// And in a whole collection, when it has become that before it was looked at.
			must(t, os.RemoveAll(filepath.Join(dir, "b")))
			must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
			got := collectFrom(t, dir, wantAll(t), func(h artifactHeader) {
				if h.Path == "a" {
					must(t, become(filepath.Join(dir, "b")))
				}
			})
			if got.err != nil || got.failure != nil || got.paths() != "a c" {
				t.Errorf("%v, %+v, %s", got.err, got.failure, got.paths())
			}
		})
	}
}

func TestAFolderThatGoesWhileItIsWalkedHasNoFiles(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a": "first", "b/c": "second", "d": "last"})
	got := collectFrom(t, dir, wantAll(t), func(h artifactHeader) {
		if h.Path == "a" {
			must(t, os.RemoveAll(filepath.Join(dir, "b")))
		}
	})
	if got.err != nil || got.failure != nil || got.paths() != "a d" {
		t.Errorf("%v, %+v, %s", got.err, got.failure, got.paths())
	}
	gone, err := os.Open(filepath.Join(writeFiles(t, nil), "."))
	must(t, err)
	defer gone.Close() //nolint:errcheck // read only
	must(t, os.Remove(gone.Name()))
	if entries, err := readFolder(int(gone.Fd())); err != nil || len(entries) != 0 {
		t.Errorf("a folder that was removed while it was open: %v, %v", entries, err)
	}
	_, err = snapshot(int(gone.Fd()))
	must(t, err)
}

func TestTheArtifactsBoundIsReachedByWhatIsAnnounced(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a": "12345", "b": "", "c": "12345"})
	must(t, os.Truncate(filepath.Join(dir, "b"), 1<<40))
	c := wantAll(t)
	c.maxBytes = 1 << 20
	got := collectFrom(t, dir, c, func(artifactHeader) { must(t, os.Truncate(filepath.Join(dir, "a"), 1)) })
	if f := got.failure; got.err != nil || got.paths() != "a" || f == nil || f.Code != executor.Exhausted || !strings.Contains(f.Message, "disk limit of 1048576 bytes") || !strings.Contains(f.Message, `"a" shrank`) {
		t.Errorf("%v, %s, %+v", got.err, got.paths(), f)
	}
	dir = writeFiles(t, map[string]string{"a": "12345", "b": "12345", "c": "12345"})
	c = wantAll(t)
	c.maxBytes = 10
	got = collectFrom(t, dir, c, nil)
	if got.paths() != "a b" || got.failure == nil || got.failure.Code != executor.Exhausted {
		t.Errorf("%s, %+v", got.paths(), got.failure)
	}
}

func TestWhatMayNotBeReadIsNamedAndTheRestIsCollected(t *testing.T) {
	if !isRoot() {
		t.Skip("SKIPPED: another uid's files (needs root)")
	}
	dir := writeFiles(t, map[string]string{"a": "first", "b": "root's", "c/d": "root's", "e": "own", "f/g": "own", "h": "last"})
	for name, mode := range map[string]os.FileMode{"": 0o755, "a": 0o644, "b": 0, "c": 0, "e": 0, "f": 0, "h": 0o644} {
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	for _, own := range []string{"e", "f", "f/g"} {
		must(t, os.Chown(filepath.Join(dir, own), testUID, testUID))
	}
	// A thread of another uid for files: what it may not read it may not change either, but for its own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(testUID); err != nil {
		t.Fatal(err)
	}
	got := collectFrom(t, dir, wantAll(t), nil)
	if _, err := unix.SetfsuidRetUid(0); err != nil {
		t.Fatal(err)
	}
	if got.err != nil || got.paths() != "a e f/g h" || string(got.data["e"]) != "own" || string(got.data["f/g"]) != "own" {
		t.Errorf("%v, %s", got.err, got.paths())
	}
	checkConflict(t, got.failure, `"b" cannot be read: permission denied`, `the folder "c" cannot be read: permission denied`)
}

func TestPermitChangesNothingButWhatItIsFor(t *testing.T) {
	dir := writeFiles(t, map[string]string{"file": "", "outside": ""})
	must(t, os.Symlink("outside", filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o500))
	must(t, os.Chmod(filepath.Join(dir, "outside"), 0o400))
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	at := int(root.Fd())
	if err := permit(at, "link", unix.S_IFREG, 0o777); !errors.Is(err, unix.EPERM) {
		t.Errorf("a link: %v", err)
	}
	if err := permit(at, "folder", unix.S_IFREG, 0o777); !errors.Is(err, unix.EPERM) {
		t.Errorf("a folder: %v", err)
	}
	if err := permit(at, "none", unix.S_IFREG, 0o777); !errors.Is(err, unix.ENOENT) {
		t.Errorf("nothing: %v", err)
	}
	must(t, permit(at, "file", unix.S_IFREG, 0o640))
	must(t, permit(at, "folder", unix.S_IFDIR, 0o710))
	for name, want := range map[string]os.FileMode{"outside": 0o400, "file": 0o640, "folder": 0o710} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// changingSink is a Sink that lets a program change its files between an Artifact's head and its data.
type changingSink struct {
	*record
	change func(name string)
}

func (c changingSink) Artifact(h *tar.Header, body io.Reader) error {
	c.change(h.Name)
	return c.record.Artifact(h, body)
}

func TestASessionGoesOnWhileItsFilesAreCollected(t *testing.T) {
	const size = 8 << 20 // more than is on its way before the Sink reads
	r := openSession(t, pythonSession())
	r.wants(t, `
import os, threading, time
os.mkdir("out")
def change():
    while not os.path.exists("change"): time.sleep(0.005)
    os.truncate("out/shrinks", 1000)
    open("out/grows", "ab").write(b"b" * 1000)
    os.rename("change", "changed")
`, "", "")
	for at, set := range map[string]func(*Start){
		"out/grows":   func(s *Start) { s.Outputs = []string{"out/"} },
		"out/shrinks": func(s *Start) { s.OutputsChanged = true },
	} {
		start := cellOf(`
for name in ("grows", "shrinks", "stays"):
    open("out/" + name, "wb").write(b"a" * 8388608)
threading.Thread(target=change, daemon=True).start()
`)
		set(&start)
		rec := changingSink{newRecord(), nil}
		rec.change = func(name string) {
			if name != at {
				return
			}
			if _, err := r.WriteFile(t.Context(), "change", 0, strings.NewReader("")); err != nil {
				t.Error(err)
			}
			r.awaitFile(t, "changed")
		}
		res, err := r.Run(t.Context(), start, RunInput{}, rec)
		if err != nil || describe(res) != "failed exit 0 collect/conflict" || len(res.Artifacts) != 3 {
			t.Fatalf("at %s: %v %s %+v %+v\n%s", at, err, describe(res), res.Failure, res.Artifacts, r.condition())
		}
		whole := strings.Repeat("a", size)
		want := map[string]string{"out/grows": whole, "out/shrinks": whole[:1000], "out/stays": whole}
		if at == "out/grows" {
			checkConflict(t, res.Failure, `"out/grows" grew while it was collected: the artifact has its first 8388608 bytes`)
		} else {
			checkConflict(t, res.Failure, `"out/shrinks" shrank while it was collected: the artifact has`)
			// How much was read before it shrank depends on the windows.
			want["out/shrinks"] = strings.TrimRight(rec.files[at], "\x00") + strings.Repeat("\x00", size-len(strings.TrimRight(rec.files[at], "\x00")))
			if n := len(strings.TrimRight(rec.files[at], "\x00")); n < 1000 || n >= size {
				t.Errorf("%d bytes of it", n)
			}
		}
		for name, text := range want {
			if rec.files[name] != text {
				t.Errorf("at %s: %s: %d bytes, want %d, or others", at, name, len(rec.files[name]), len(text))
			}
		}
		if err := r.RemoveFile(t.Context(), "changed"); err != nil {
			t.Error(err)
		}
	}
	r.wants(t, "1 + 1", "", "2")
}

// awaitFile waits until the session has a file of that name, for at most 30 s.
func (r *sessionRunner) awaitFile(tb testing.TB, name string) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list, err := r.ListFiles(tb.Context(), "", false)
		if err != nil || time.Now().After(deadline) {
			tb.Errorf("%s did not come: %v", name, err)
			return
		}
		if slices.ContainsFunc(list, func(f executor.File) bool { return f.Path == name }) {
			return
		}
	}
}
