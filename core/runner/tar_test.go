//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
	"time"
)

// entry is one entry of a test archive.
type entry struct {
	h    *tar.Header
	data string
}

type tarball []entry

func file(name, data string) entry {
	return entry{&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1700000000, 0)}, data}
}

func dir(name string) entry {
	return entry{&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func link(name, to string) entry {
	return entry{&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, ""}
}

func makeTar(tb testing.TB, entries ...entry) tarball {
	tb.Helper()
	return entries
}

func (a tarball) bytes(tb testing.TB) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range a {
		if err := w.WriteHeader(e.h); err != nil {
			tb.Fatalf("%s: %v", e.h.Name, err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			tb.Fatalf("%s: %v", e.h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func (a tarball) reader(tb testing.TB) io.Reader {
	tb.Helper()
	return bytes.NewReader(a.bytes(tb))
}
