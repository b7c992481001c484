package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// collected is what a collector has sent.
type collected struct {
	headers []protocol.ArtifactHeader
	data    map[string][]byte
	failure *executor.Failure
	err     error
}

// recorder keeps the frames that are written to it.
type recorder struct {
	written bytes.Buffer
	// hold, if set, is called with every write before it is kept.
	hold func(p []byte)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.hold != nil {
		r.hold(p)
	}
	return r.written.Write(p)
}

// types are the types of the frames that were written.
func (r *recorder) types(t *testing.T) []protocol.FrameType {
	t.Helper()
	var all []protocol.FrameType
	frames := protocol.NewReader(bytes.NewReader(r.written.Bytes()))
	for {
		kind, n, err := frames.Header()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err == nil {
			_, err = frames.Payload(n)
		}
		must(t, err)
		all = append(all, kind)
	}
}

// collectFrom collects the files of dir. change is called at each file's header, before anything of it is read.
func collectFrom(t *testing.T, dir string, c *Collector, change func(protocol.ArtifactHeader)) collected {
	t.Helper()
	g := &recorder{hold: func(p []byte) {
		var h protocol.ArtifactHeader
		if protocol.FrameType(p[4]) == protocol.FrameArtifact && change != nil && json.Unmarshal(p[protocol.HeaderBytes:], &h) == nil {
			change(h)
		}
	}}
	c.Out, c.Credit = protocol.NewWriter(g), protocol.NewCredit(1<<40)
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // read only
	got := collected{data: map[string][]byte{}}
	got.failure, got.err = c.Collect(int(root.Fd()))
	frames := protocol.NewReader(&g.written)
	for {
		kind, n, err := frames.Header()
		if errors.Is(err, io.EOF) {
			return got
		}
		p, payloadErr := frames.Payload(n)
		if err = errors.Join(err, payloadErr); err != nil {
			t.Fatal(err)
		}
		switch kind {
		case protocol.FrameArtifact:
			var h protocol.ArtifactHeader
			if err := json.Unmarshal(p, &h); err != nil {
				t.Fatal(err)
			}
			got.headers = append(got.headers, h)
			got.data[h.Path] = nil
		case protocol.FrameArtifactData:
			h := got.headers[len(got.headers)-1]
			got.data[h.Path] = append(got.data[h.Path], p...)
		case protocol.FrameArtifactEnd:
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

func wantAll(t *testing.T) *Collector {
	t.Helper()
	want, err := ParseGlobs([]string{"**"})
	if err != nil {
		t.Fatal(err)
	}
	return &Collector{Want: want}
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
	const size = 3 * protocol.ChunkBytes
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
			"it shrinks to a whole chunk", func(f string) error { return os.Truncate(f, protocol.ChunkBytes) },
			whole[:protocol.ChunkBytes] + strings.Repeat("\x00", size-protocol.ChunkBytes), fmt.Sprintf("has %d bytes of it", protocol.ChunkBytes),
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
			got := collectFrom(t, dir, wantAll(t), func(h protocol.ArtifactHeader) {
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
		got := collectFrom(t, dir, wantAll(t), func(protocol.ArtifactHeader) { must(t, appendTo(filepath.Join(dir, "b"), "x")) })
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
	g := &recorder{}
	c := &Collector{Out: protocol.NewWriter(g), Credit: protocol.NewCredit(1 << 20)}
	must(t, c.sendFile(io.MultiReader(strings.NewReader("data"), iotest.ErrReader(&os.PathError{Op: "read", Path: "/secret", Err: unix.EIO})), protocol.ArtifactHeader{Path: "f", Size: 10}))
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
	got := collectFrom(t, dir, wantAll(t), func(h protocol.ArtifactHeader) { must(t, os.Truncate(filepath.Join(dir, h.Path), 2)) })
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
			if os.Geteuid() != 0 {
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
			g := &recorder{}
			c := &Collector{Out: protocol.NewWriter(g), Credit: protocol.NewCredit(1 << 20)}
			must(t, c.send(int(root.Fd()), "b", "b"))
			if got := g.types(t); len(got) > 0 || c.faults.failure() != nil || c.count != 0 {
				t.Errorf("frames of types %v, failure %+v", got, c.faults.failure())
			}
			// And in a whole collection, when it has become that before it was looked at.
			must(t, os.RemoveAll(filepath.Join(dir, "b")))
			must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
			got := collectFrom(t, dir, wantAll(t), func(h protocol.ArtifactHeader) {
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
	got := collectFrom(t, dir, wantAll(t), func(h protocol.ArtifactHeader) {
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
	_, err = Snapshot(int(gone.Fd()))
	must(t, err)
}

func TestTheArtifactsBoundIsReachedByWhatIsAnnounced(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a": "12345", "b": "", "c": "12345"})
	must(t, os.Truncate(filepath.Join(dir, "b"), 1<<40))
	c := wantAll(t)
	c.MaxBytes = 1 << 20
	got := collectFrom(t, dir, c, func(protocol.ArtifactHeader) { must(t, os.Truncate(filepath.Join(dir, "a"), 1)) })
	if f := got.failure; got.err != nil || got.paths() != "a" || f == nil || f.Code != executor.Exhausted || !strings.Contains(f.Message, "exceed disk_mb 1") || !strings.Contains(f.Message, `"a" shrank`) {
		t.Errorf("%v, %s, %+v", got.err, got.paths(), f)
	}
	dir = writeFiles(t, map[string]string{"a": "12345", "b": "12345", "c": "12345"})
	c = wantAll(t)
	c.MaxBytes = 10
	got = collectFrom(t, dir, c, nil)
	if got.paths() != "a b" || got.failure == nil || got.failure.Code != executor.Exhausted {
		t.Errorf("%s, %+v", got.paths(), got.failure)
	}
	c = wantAll(t)
	c.Budget = 5
	got = collectFrom(t, dir, c, nil)
	if f := got.failure; got.paths() != "a" || f == nil || f.Code != executor.Exhausted || !strings.Contains(f.Message, "5 bytes together (engine.max_artifact_bytes)") {
		t.Errorf("%s, %+v", got.paths(), f)
	}
}

func TestWhatMayNotBeReadIsNamedAndTheRestIsCollected(t *testing.T) {
	needtest.NeedRoot(t)
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

func TestTimesThatJSONCannotSayAreUnknown(t *testing.T) {
	for seconds, known := range map[int64]bool{0: true, 1 << 31: true, 1 << 45: false, -(1 << 45): false, 253402300800: false, 253402300799: true, -62167219200: false} {
		if got := EncodableTime(time.Unix(seconds, 0)); got.IsZero() == known {
			t.Errorf("%d is %s", seconds, got)
		} else if _, err := got.MarshalJSON(); err != nil {
			t.Error(err)
		}
	}
}
