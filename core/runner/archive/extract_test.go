//go:build linux

package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// target is a root to unpack into, inside a folder whose other content must not change.
type target struct {
	outer, root string
	before      []string
}

func newTarget(tb testing.TB) *target {
	tb.Helper()
	return newTargetIn(tb, tb.TempDir())
}

func newTargetIn(tb testing.TB, outer string) *target {
	tb.Helper()
	s := &target{outer: outer}
	s.root = filepath.Join(s.outer, "root")
	if err := errors.Join(
		os.Mkdir(s.root, 0o700),
		os.WriteFile(filepath.Join(s.outer, "secret"), []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(s.outer, "other"), 0o700),
	); err != nil {
		tb.Fatal(err)
	}
	s.before = s.outside(tb)
	return s
}

// outside lists everything beside the root, with all that a program could change about it.
func (s *target) outside(tb testing.TB) []string {
	tb.Helper()
	var all []string
	err := filepath.WalkDir(s.outer, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == s.root {
			return fs.SkipDir
		}
		if p == s.outer {
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		data, _ := os.ReadFile(p) //nolint:errcheck // a folder has none
		all = append(all, fmt.Sprint(p, st.Mode(), st.ModTime(), string(data)))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func (s *target) check(tb testing.TB) {
	tb.Helper()
	if after := s.outside(tb); !slices.Equal(after, s.before) {
		tb.Errorf("outside the root something changed:\n%s\n%s", s.before, after)
	}
}

// unpack unpacks with a small disk limit.
func (s *target) unpack(tb testing.TB, r io.Reader) (*Extractor, error) {
	tb.Helper()
	root, err := os.Open(s.root)
	if err != nil {
		tb.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // read only
	x := &Extractor{Root: root, MaxBytes: 1 << 20}
	return x, x.Extract(r)
}

// tree describes what is in the root.
func (s *target) tree(tb testing.TB) string {
	tb.Helper()
	var lines []string
	err := filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == s.root {
			return err
		}
		name, err := filepath.Rel(s.root, p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			name += " -> " + to
		default:
			data, err := os.ReadFile(p) //nolint:gosec // a test's own file
			if err != nil {
				return err
			}
			name += "=" + string(data)
		}
		lines = append(lines, name)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(lines, " ")
}

func TestGoodArchives(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long/", 40) + strings.Repeat("n", 200)
	for _, c := range []struct {
		name string
		a    archive
		want string
		py   string
	}{
		{"files and folders", archive{dir("a/"), file("a/b.txt", "1"), file("c", "2")}, "a/ a/b.txt=1 c=2", ""},
		{"a folder that no entry made", archive{file("x/y/z.py", "1")}, "x/ x/y/ x/y/z.py=1", "x/y/z.py"},
		{"names with ./", archive{dir("./"), file("./a.py", "1"), file("./d/./b.py", "2")}, "a.py=1 d/ d/b.py=2", "a.py"},
		{"of duplicate names the last wins", archive{file("a", "1"), file("a", "22"), file("a", "333")}, "a=333", ""},
		{"a file after a link of the same name", archive{file("t", "t"), link("a", "t"), file("a", "new")}, "a=new t=t", ""},
		{"a link after a file of the same name", archive{file("t", "t"), file("a", "1"), link("a", "t")}, "a -> t t=t", ""},
		{"a folder after a file of the same name", archive{file("a", "1"), dir("a/"), file("a/b", "2")}, "a/ a/b=2", ""},
		{"a file after an empty folder of the same name", archive{dir("a/"), file("a", "1")}, "a=1", ""},
		{"a folder after a link to a folder", archive{dir("t/"), link("a", "t"), dir("a/"), file("a/f", "1")}, "a/ a/f=1 t/", ""},
		{"links that stay inside", archive{file("d/f", "1"), link("l", "d/f"), link("d/up", "../d/f"), link("dangling", "nowhere"), link("loop", "loop")},
			"d/ d/f=1 d/up -> ../d/f dangling -> nowhere l -> d/f loop -> loop", ""},
		{"a link to what would be below a file", archive{file("f", "1"), link("l", "f/x")}, "f=1 l -> f/x", ""},
		{"a link to a name that no file has", archive{link("l", strings.Repeat("n", 300)), file("a", "1")}, "a=1 l -> " + strings.Repeat("n", 300), ""},
		{"a hard link", archive{file("d/f", "1"), hard("h.py", "d/f")}, "d/ d/f=1 h.py=1", "h.py"},
		{"a long name", archive{file(long, "1")}, "", ""},
		{"the first .py in archive order", archive{file("z.py", "1"), file("a.py", "2")}, "a.py=2 z.py=1", "z.py"},
		{"no entries", nil, "", ""},
		{"names that are not ASCII", archive{file("ä/日本.py", "1")}, "ä/ ä/日本.py=1", "ä/日本.py"},
		{"a global header", archive{{&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""}, file("a", "1")}, "a=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTarget(t)
			x, err := s.unpack(t, c.a.reader(t))
			if err != nil {
				t.Fatal(err)
			}
			s.check(t)
			if got := s.tree(t); got != c.want && c.want != "" {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if x.Python.First != c.py {
				t.Errorf("first .py %q, want %q", x.Python.First, c.py)
			}
		})
	}
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	for name, c := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTarget(t)
			_, err := s.unpack(t, bytes.NewReader(c.data))
			var bad *InputError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %q", err, c.want)
			}
			s.check(t)
		})
	}
}

func TestTooManyEntries(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	block := rawHeader("same", '5', 0)
	entries := func(n int) io.Reader {
		return io.MultiReader(bytes.NewReader(bytes.Repeat(block, n)), bytes.NewReader(make([]byte, 1024)))
	}
	if _, err := s.unpack(t, entries(maxEntries)); err != nil {
		t.Error(err)
	}
	if _, err := s.unpack(t, entries(maxEntries+1)); err == nil || !strings.Contains(err.Error(), "more than 100000 entries") {
		t.Errorf("got %v", err)
	}
}

func TestModesAndTimesAreKept(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	at := time.Unix(1_600_000_000, 0)
	setuid := file("tool", "x")
	setuid.h.Mode, setuid.h.ModTime = 0o6755, at
	closed := dir("closed/")
	closed.h.Mode, closed.h.ModTime = 0, at
	unreadable := file("closed/f", "x")
	unreadable.h.Mode = 0
	open := dir("open/")
	open.h.Mode, open.h.ModTime = 0o777, at
	before := dir("open/") // the later entry of the same folder counts
	before.h.Mode = 0o700
	if _, err := s.unpack(t, archive{setuid, closed, unreadable, before, open}.reader(t)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"tool": 0o755, "closed": fs.ModeDir | 0o700, "open": fs.ModeDir | 0o755, "closed/f": 0o600} {
		st, err := os.Stat(filepath.Join(s.root, name))
		if err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v, want %v", name, st.Mode(), err, want)
		}
		if name != "closed/f" && !st.ModTime().Equal(at) {
			t.Errorf("%s: %v", name, st.ModTime())
		}
	}
}

func TestWhatFollowsTheEndIsRead(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	rest := bytes.NewReader(make([]byte, 1<<20))
	if _, err := s.unpack(t, io.MultiReader(archive{file("a", "1")}.reader(t), rest)); err != nil || rest.Len() > 0 {
		t.Errorf("%v, %d bytes left", err, rest.Len())
	}
}

func TestAReadersOwnErrorIsNotTheArchives(t *testing.T) {
	t.Parallel()
	good := archive{file("a", strings.Repeat("x", 5000))}.bytes(t)
	for _, n := range []int{0, 3, 100, 512, 2000, len(good) - 100, len(good)} {
		s := newTarget(t)
		own := errors.New("mine")
		_, err := s.unpack(t, io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(own)))
		if !errors.Is(err, own) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func TestAnArchiveThatStopsIsCutOffInWhateverPiecesItComes(t *testing.T) {
	t.Parallel()
	whole := archive{file("a", "x"+strings.Repeat("\x00", 511))}.bytes(t)
	if _, err := newTarget(t).unpack(t, iotest.OneByteReader(bytes.NewReader(whole))); err != nil {
		t.Error(err)
	}
	_, err := newTarget(t).unpack(t, iotest.OneByteReader(bytes.NewReader(whole[:1024])))
	if err == nil || !strings.Contains(err.Error(), "without an end mark") {
		t.Errorf("without its end mark: %v", err)
	}
}

func TestTwoPythonFilesOfDifferentNamesAreNoted(t *testing.T) {
	t.Parallel()
	x, err := newTarget(t).unpack(t, archive{file("a.py", "1"), file("a.py", "2"), file("b.txt", "3"), file("b.py", "4"), file("c.py", "5")}.reader(t))
	if want := (PythonFiles{First: "a.py", Other: "b.py"}); err != nil || x.Python != want {
		t.Errorf("got %+v, %v, want %+v", x.Python, err, want)
	}
}

func TestAnExtractorTellsHowMuchItHasRead(t *testing.T) {
	t.Parallel()
	root, err := os.Open(newTarget(t).root)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	var told []int64
	x := &Extractor{Root: root, Progress: func(done int64) { told = append(told, done) }}
	must(t, x.Extract(archive{file("a", "1"), dir("d/"), file("b", "2")}.reader(t)))
	if want := []int64{513, 2049}; !slices.Equal(told, want) {
		t.Errorf("got %v, want %v", told, want)
	}
}

func TestAllThatAnArchiveHasIsTheUsers(t *testing.T) {
	needtest.NeedRoot(t)
	t.Parallel()
	to := workRoot(t)
	root, err := os.Open(to)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	x := &Extractor{Root: root, Own: true, UID: testUID, GID: testUID + 1}
	must(t, x.Extract(archive{file("file", "1"), dir("folder/"), file("made/f", "2"), link("link", "file"), link("dangling", "none")}.reader(t)))
	for _, name := range []string{"file", "folder", "made", "made/f", "link", "dangling"} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(to, name), &st))
		if int(st.Uid) != testUID || int(st.Gid) != testUID+1 {
			t.Errorf("%s is of %d:%d", name, st.Uid, st.Gid)
		}
	}
}

func TestAnErrorOfTheKernelNamesTheEntry(t *testing.T) {
	t.Parallel()
	x := &Extractor{MaxBytes: 1 << 20, in: &tarInput{}}
	for cause, want := range map[error]string{
		unix.ELOOP: "not a folder", unix.ENOTDIR: "not a folder", unix.ENOSPC: "exceed disk_mb 1", unix.EDQUOT: "exceed disk_mb 1", unix.EFBIG: "exceed disk_mb 1",
		unix.EISDIR: "must not replace", unix.ENOTEMPTY: "must not replace", unix.EEXIST: "must not replace", unix.ENAMETOOLONG: "refuses the name",
		unix.EINVAL: "refuses the name", io.ErrUnexpectedEOF: "ends within this entry",
	} {
		err := x.explain("a/b", fmt.Errorf("write: %w", cause))
		if _, bad := errors.AsType[*InputError](err); !bad || !strings.HasPrefix(err.Error(), `"a/b": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", cause, err, want)
		}
	}
	err := x.explain("a/b", unix.EIO)
	if _, bad := errors.AsType[*InputError](err); bad || !errors.Is(err, unix.EIO) {
		t.Errorf("an error of the machine: %v", err)
	}
}

func TestANameIsAsLongAndAsDeepAsItMayBe(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("n", maxName)
	for name, good := range map[string]bool{
		part: true, part + "n": false,
		strings.Repeat(part+"/", maxPath/len(part+"/")): true, strings.Repeat(part+"/", maxPath/len(part+"/")) + "n": false,
		strings.Repeat("./d/", MaxDepth): true, strings.Repeat("./d/", MaxDepth) + "d": false,
	} {
		if _, err := CleanName(name); (err == nil) != good {
			t.Errorf("%d bytes, %d slashes: %v", len(name), strings.Count(name, "/"), err)
		}
	}
}

// BenchmarkExtract is a tar of 256 MiB in large files, then one of 10,000 small ones.
func BenchmarkExtract(b *testing.B) {
	large := archive{file("large", strings.Repeat("0123456789abcdef", 4<<20))}.bytes(b)
	var many archive
	for i := range 10_000 {
		many = append(many, file(fmt.Sprintf("d%d/e%d/f%d.py", i/1000, i/100, i), strings.Repeat("x", 1000)))
	}
	small := many.bytes(b)
	for name, data := range map[string][]byte{"large": large, "small": small} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				s := newTarget(b)
				root, err := os.Open(s.root)
				if err != nil {
					b.Fatal(err)
				}
				x := &Extractor{Root: root}
				if err := x.Extract(bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
				if err := errors.Join(Empty(int(root.Fd())), root.Close()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestZerosTakeNoRoom(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	zeros := strings.Repeat("\x00", 300<<10)
	for name, content := range map[string]string{"zeros": zeros, "ends": "a" + zeros + "b", "hole at the end": "a" + zeros} {
		if _, err := s.unpack(t, archive{file(name, content)}.reader(t)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(s.root, name)
		if got, err := os.ReadFile(path); err != nil || string(got) != content { //nolint:gosec // a test's own
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil || st.Blocks*512 > 16<<10 {
			t.Errorf("%s: %d blocks, %v", name, st.Blocks, err)
		}
	}
}
