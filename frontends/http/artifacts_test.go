package httpfrontend

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// archived is a Service with one archive, which tells when it is closed.
func archived(t *testing.T, content io.Reader) (h http.Handler, closed func() bool) {
	t.Helper()
	svc := hello().service()
	archive := closing{content, make(chan struct{})}
	svc.artifacts = func(context.Context, string) (io.ReadCloser, error) { return archive, nil }
	return handlerOf(t, svc), func() bool {
		select {
		case <-archive.closed:
			return true
		default:
			return false
		}
	}
}

func TestArtifactsAreClosed(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, path := range []string{"", "/a.txt", "/none"} {
			h, closed := archived(t, bytes.NewReader(tarOf("a.txt", "a")))
			w := httptest.NewRecorder()
			r := newGet(t, t.Context(), one+"/artifacts"+path)
			r.Method = method
			h.ServeHTTP(w, r)
			if !closed() {
				t.Errorf("%s %q: %d, and the archive stays open", method, path, w.Code)
			}
			if got := w.Header().Get("Content-Disposition"); path == "" && got != "attachment; filename="+testID+".tar" {
				t.Errorf("%s: a browser would show the archive: %q", method, got)
			}
		}
	}
}

func TestOnlyAFileIsAnArtifact(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	archive := tar.NewWriter(&buf)
	for name, kind := range map[string]byte{"folder": tar.TypeDir, "link": tar.TypeSymlink, "hard": tar.TypeLink, "pipe": tar.TypeFifo} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: "/etc/passwd"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"folder", "link", "hard", "pipe"} {
		h, _ := archived(t, bytes.NewReader(buf.Bytes()))
		wantProblem(t, do(t, h, http.MethodGet, one+"/artifacts/"+name, nil), 404, executor.NotFound)
	}
}

func TestAnArchiveThatCannotBeReadIsOurFailure(t *testing.T) {
	t.Parallel()
	whole := tarOf("a.txt", strings.Repeat("a", 10_000))
	for _, tt := range []struct {
		path string
		// read is how much of the archive there is.
		read int
		cut  bool
	}{
		{"", 0, false},
		{"", 1000, true},
		{"/a.txt", 0, false},
		{"/a.txt", 512, false}, // the file's header, and nothing of the file
		{"/a.txt", 1000, true},
		{"/b.txt", 1000, false},
	} {
		h, _ := archived(t, io.MultiReader(bytes.NewReader(whole[:tt.read]), broken{}))
		w := httptest.NewRecorder()
		wasCut := ends(h, w, newGet(t, t.Context(), one+"/artifacts"+tt.path))
		if wasCut != tt.cut {
			t.Errorf("%q of %d bytes: the connection was cut: %t, want %t", tt.path, tt.read, wasCut, tt.cut)
		}
		if tt.cut {
			continue
		}
		wantProblem(t, w, 500, executor.Internal)
		if got := w.Header().Get("Content-Disposition"); got != "" {
			t.Errorf("%q of %d bytes: a browser would save the error as %q", tt.path, tt.read, got)
		}
	}
}
