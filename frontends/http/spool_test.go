package httpfrontend

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// spooled counts the open files of a folder; those that were removed, too.
func spooled(t *testing.T, dir string) int {
	t.Helper()
	const open = "/proc/self/fd"
	list, err := os.ReadDir(open)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range list {
		// One that another test has closed since has no link any more.
		if file, err := os.Readlink(filepath.Join(open, fd.Name())); err == nil && strings.HasPrefix(file, dir+"/") {
			n++
		}
	}
	return n
}

func TestSpooledPartsAreGivenBack(t *testing.T) {
	t.Parallel()
	meta, bad := part{"metadata", "{}", nil}, part{"metadata", "{", nil}
	archive := part{"tar", string(tarOf("data.bin", strings.Repeat("d", 2*tarAhead))), nil}
	input := part{"stdin", strings.Repeat("i", 2*stdinMemory), nil}
	for _, tt := range []struct {
		name  string
		parts []part
		// files is how many are open when the Execution is submitted; 0: it is not.
		files  int
		refuse error
		status int
	}{
		{"a tar", []part{archive, meta}, 1, nil, 200},
		{"an input", []part{input, meta, archive}, 1, nil, 200},
		{"an input behind the tar", []part{meta, archive, input}, 1, nil, 200},
		{"both", []part{archive, input, meta}, 2, nil, 200},
		{"both of a refused request", []part{archive, input, meta}, 2, executor.Errorf(executor.Exhausted, "full"), 429},
		{"both of a broken request", []part{archive, input, bad}, 0, nil, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for path, accepted := range map[string]int{"/api/v1/exec/sync": http.StatusOK, "/api/v1/exec/async": http.StatusAccepted} {
				dir := t.TempDir()
				svc, files := hello().service(), 0
				svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
					err := consume(in)
					files = spooled(t, dir)
					if tt.refuse != nil {
						err = tt.refuse
					}
					return hello().state(), err
				}
				w := postForm(t, handlerOf(t, svc, func(o *Options) { o.SpoolDir = dir }), path, tt.parts...)
				if want := tt.status; w.Code != want && (want != http.StatusOK || w.Code != accepted) {
					t.Errorf("%s: status %d, want %d: %s", path, w.Code, want, w.Body)
				}
				if files != tt.files {
					t.Errorf("%s: %d files are open at Submit, want %d", path, files, tt.files)
				}
				if left := spooled(t, dir); left > 0 {
					t.Errorf("%s: %d files are open behind the answer", path, left)
				}
				if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
					t.Errorf("%s: left behind: %v %v", path, names, err)
				}
			}
		})
	}
}

func TestAFullDiskPasses(t *testing.T) {
	t.Parallel()
	for err, code := range map[error]executor.Code{syscall.ENOSPC: executor.Unavailable, syscall.EIO: executor.Internal} {
		if got := executor.CodeOf(spoolError(&os.PathError{Op: "write", Err: err})); got != code {
			t.Errorf("%v has the code %s, want %s", err, got, code)
		}
	}
}
