//go:build linux

package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fuzzedBytes bounds what an archive of FuzzExtract unpacks to.
const fuzzedBytes = 64 << 10

// FuzzExtract: whatever an archive holds, nothing outside the root changes and nothing but files, folders and links
// comes to be inside. All inputs of a process are unpacked into one folder in memory, which is emptied between them.
func FuzzExtract(f *testing.F) {
	for _, c := range hostile(f) {
		if len(c.data) <= 4<<10 {
			f.Add(c.data)
		}
	}
	f.Add(archive{dir("a/"), file("a/b.py", "1"), link("l", "a/b.py"), hard("h", "a/b.py"), file("a/b.py", "2")}.bytes(f))
	s := newTargetIn(f, memoryFolder(f))
	root, err := os.Open(s.root)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = root.Close() }) // read only
	f.Fuzz(func(t *testing.T, data []byte) {
		data = withChecksums(data)
		x := &Extractor{Root: root, MaxBytes: fuzzedBytes}
		err := x.Extract(bytes.NewReader(data))
		if err == nil && x.in.err != nil {
			t.Error("an error of the reader was lost")
		}
		var bad *InputError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("what is wrong with an archive is said to be our fault: %v", err)
		}
		s.check(t)
		checkKinds(t, int(root.Fd()), "", fuzzedBytes)
		if err := Empty(int(root.Fd())); err != nil {
			t.Fatal(err)
		}
	})
}

// memoryFolder makes a folder in memory, where there is one.
func memoryFolder(tb testing.TB) string {
	tb.Helper()
	parent := "/dev/shm"
	if st, err := os.Stat(parent); err != nil || !st.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "runner-fuzz-*")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // a fuzzing process may be killed anyway
	return dir
}

// checkKinds fails the test if anything but files, folders and links is below a folder, or more bytes than that. It returns
// how many bytes there are.
func checkKinds(t *testing.T, at int, prefix string, limit int64) (bytes int64) {
	t.Helper()
	entries, err := readFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(prefix, e.Name())
		st, err := Lstat(at, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if st.Nlink == 1 { // else it would be counted under each of its names
				bytes += st.Size
			}
			if st.Mode&0o7000 != 0 {
				t.Errorf("%q has mode %o", name, st.Mode)
			}
		case unix.S_IFLNK:
		case unix.S_IFDIR:
			fd, err := OpenDir(at, e.Name())
			if err != nil {
				t.Fatal(err)
			}
			bytes += checkKinds(t, fd, name, limit)
			_ = unix.Close(fd) // read only
		default:
			t.Errorf("%q has mode %o", name, st.Mode)
		}
	}
	if bytes > limit {
		t.Errorf("%d bytes were unpacked, at most %d may", bytes, limit)
	}
	return bytes
}

// withChecksums is an archive whose headers have the right checksums: else nearly every change ends at the first header.
func withChecksums(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at+512 <= len(data); {
		h := data[at : at+512]
		at += 512
		if bytes.Equal(h, zeroBlock[:]) {
			continue
		}
		copy(h[148:156], "        ")
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		if size, err := strconv.ParseInt(strings.Trim(string(h[sizeField:sizeField+12]), " \x00"), 8, 32); err == nil && size > 0 {
			at += int(size+511) / 512 * 512
		}
	}
	return data
}
