package dockerbackend

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// toyVolume is a daemon with the runner's volume.
type toyVolume struct {
	mu     sync.Mutex
	boot   string // of the volume
	mark   int    // the status of the question whether the volume is complete
	listed int    // the status of the list of containers
	calls  []string
	files  []string // what was copied
}

func (y *toyVolume) answer(r *http.Request, path string) (int, string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	call := r.Method + " " + strings.Join(strings.SplitN(path, "/", 4)[1:3], "/")
	y.calls = append(y.calls, call)
	switch {
	case call == "POST volumes/create":
		return http.StatusCreated, `{"Name":"v","Mountpoint":"/m","Labels":{"` + labelBoot + `":"` + y.boot + `"}}`
	case call == "DELETE volumes/v" && y.listed != 0:
		return http.StatusConflict, `{"message":"volume is in use"}`
	case call == "DELETE volumes/v":
		y.boot = "new"
	case call == "GET containers/json":
		return y.listed, `{"message":"the daemon fails"}`
	case call == "POST containers/create":
		return http.StatusCreated, `{"Id":"c"}`
	case r.Method == http.MethodHead:
		return y.mark, ""
	case r.Method == http.MethodPut:
		for in := tar.NewReader(r.Body); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return http.StatusBadRequest, `{"message":"` + err.Error() + `"}`
			}
			y.files = append(y.files, fmt.Sprintf("%s %o", h.Name, h.Mode))
		}
	}
	return http.StatusOK, "{}"
}

// said returns the requests since the last call, and the files that were copied.
func (y *toyVolume) said() (calls string, files []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	defer func() { y.calls, y.files = nil, nil }()
	return strings.Join(y.calls, ", "), y.files
}

func newToyVolume(t *testing.T) (*runnerVolume, *toyVolume) {
	t.Helper()
	y := &toyVolume{mark: http.StatusNotFound}
	return &runnerVolume{daemon: toyDaemon(t, y.answer), program: newProgram([]byte("runner"), nil), place: func() place { return place{Volume: "v"} }}, y
}

func TestTheVolumeIsFilledOnce(t *testing.T) {
	t.Parallel()
	const fills = "POST volumes/create, POST containers/create, HEAD containers/c, PUT containers/c, DELETE containers/c"
	v, y := newToyVolume(t)
	for _, step := range []struct {
		before string
		do     func()
		calls  string
	}{
		{"the first use", func() {}, fills},
		{"the second use", func() {}, ""},
		{"it may be gone", v.doubt, fills},
		{"it was removed", func() {
			if err := v.remove(t.Context()); err != nil {
				t.Error(err)
			}
			y.said()
		}, fills},
	} {
		step.do()
		hosts, err := v.ensure(t.Context(), "image")
		calls, files := y.said()
		if err != nil || hosts != "/m/hosts" || calls != step.calls {
			t.Errorf("%s: %q, %v; the requests were %q", step.before, hosts, err, calls)
		}
		// Programs have another user than the files, and the mark comes last.
		if want := []string{runnerFile + " 755", hostsFile + " 444", v.program.mark() + " 444"}; step.calls != "" && !slices.Equal(files, want) {
			t.Errorf("%s: the files are %q, want %q", step.before, files, want)
		}
	}
}

func TestAVolumeOfAnEndedLifeBecomesThatOfThisOne(t *testing.T) {
	t.Parallel()
	const removes = "POST volumes/create, DELETE volumes/v, POST volumes/create, "
	for boot, want := range map[string]bool{"a.4194304999.17." + processNumbers(): true, newBoot(): false, "a.4194304999.17.another": false} {
		v, y := newToyVolume(t)
		y.boot = boot
		if _, err := v.ensure(t.Context(), "image"); err != nil {
			t.Error(err)
		}
		if calls, _ := y.said(); strings.HasPrefix(calls, removes) != want {
			t.Errorf("a volume of the life %q: %q", boot, calls)
		}
	}
}

func TestADaemonThatFailsLeavesTheVolumeAsItIs(t *testing.T) {
	t.Parallel()
	v, y := newToyVolume(t)
	y.mark, y.listed = http.StatusInternalServerError, http.StatusInternalServerError
	if _, err := v.ensure(t.Context(), "image"); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("it is not known whether the volume is complete: %v", err)
	}
	if calls, files := y.said(); files != nil || !strings.HasSuffix(calls, "DELETE containers/c") {
		t.Errorf("the requests were %q", calls)
	}
	if err := v.remove(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("it is not known whether a container has the volume: %v", err)
	}
}

// TestTheHashOfARunnerCoversAllFilesOfItsVolume: a volume with the same name has the same content.
func TestTheHashOfARunnerCoversAllFilesOfItsVolume(t *testing.T) {
	t.Parallel()
	a, b := newProgram([]byte("runner"), nil), newProgram([]byte("Runner"), nil)
	if a.hash == b.hash || a.volumeName("mine") == b.volumeName("mine") || a.volumeName("mine") == a.volumeName("other") {
		t.Error("two volumes have the same name")
	}
}
