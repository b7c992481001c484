//go:build linux

package runner

import (
	"io"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAnUploadOfAnotherSizeChangesNothing(t *testing.T) {
	r := openSession(t, pythonSession())
	if _, err := r.WriteFile(t.Context(), executor.File{Path: "kept", SizeBytes: 6}, strings.NewReader("before")); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, 3, 5, 1 << 20} {
		for _, name := range []string{"kept", "new", "folder/new"} {
			if f, err := r.WriteFile(t.Context(), executor.File{Path: name, SizeBytes: size}, strings.NewReader("four")); executor.CodeOf(err) != executor.Invalid {
				t.Errorf("%s: announced with %d bytes, and 4 came: %+v, %v", name, size, f, err)
			}
		}
	}
	r.wants(t, "import os; os.listdir(), open('kept').read()", "", "(['kept'], 'before')")
}

// A program sees an upload that is under way, so it can say when there is one.
func TestAnUploadUnderWayIsNoFile(t *testing.T) {
	r := openSession(t, pythonSession())
	body, writing := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.WriteFile(t.Context(), executor.File{Path: "folder/new", SizeBytes: -1}, body)
		done <- err
	}()
	if _, err := io.WriteString(writing, "half"); err != nil {
		t.Fatal(err)
	}
	r.wants(t, "import os\nwhile not os.path.isdir('folder') or not os.listdir('folder'): pass\nos.path.exists('folder/new')", "", "False")
	for path, want := range map[string]string{"": "folder", "folder": ""} {
		list, err := r.ListFiles(t.Context(), path, true)
		var names []string
		for _, f := range list {
			names = append(names, f.Path)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("the list of %q is %q: %v", path, names, err)
		}
	}
	start := cellOf("None")
	start.FilesChanged, start.OutputsChanged = true, true
	res, rec := r.run(t, start, RunInput{})
	if len(res.FilesChanged) > 0 || len(rec.files) > 0 {
		t.Errorf("told as changed: %+v, collected: %v", res.FilesChanged, rec.files)
	}
	if err := writing.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.wants(t, "os.listdir('folder'), open('folder/new').read()", "", "(['new'], 'half')")
}
