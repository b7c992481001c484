package uvbackend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// fakeMinor is a version that no machine of tests has.
const fakeMinor = "3.15"

// fakePython is what the fake interpreter does: it answers the prober, and says hello for every program.
func fakePython() {
	if len(os.Args) == 5 && os.Args[4] == probeCode {
		raw, _ := json.Marshal(answer{Executable: os.Args[0], Base: os.Args[0], Version: fakeMinor + ".7", Platform: "linux-test", Implementation: "cpython"})
		fmt.Println(string(raw))
	} else {
		fmt.Println("a fake Python", os.Args[1:])
	}
	os.Exit(0)
}

// pythonHouse is a mirror of interpreters on loopback. It has one, of fakeMinor, which is this test's binary.
type pythonHouse struct {
	*httptest.Server
	archive []byte
	// fetched counts the requests for the archive.
	fetched atomic.Int64
	// closed makes it answer that there is nothing.
	closed atomic.Bool
}

// newPythonHouse makes a mirror and sets the variable that names its list. at is where the list says that the archive is; "": at the mirror.
func newPythonHouse(t *testing.T, at string) *pythonHouse {
	t.Helper()
	needUV(t)
	h := &pythonHouse{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if h.closed.Load() {
			http.NotFound(out, in)
			return
		}
		if in.URL.Path == "/list.json" {
			arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
			one := map[string]any{
				"name": "cpython", "arch": map[string]any{"family": arch, "variant": nil}, "os": "linux", "libc": "gnu", "major": 3, "minor": 15, "patch": 7,
				"prerelease": "", "url": at + "/cpython-install_only.tar.gz", "sha256": nil, "variant": nil, "build": "20260101",
			}
			_ = json.NewEncoder(out).Encode(map[string]any{"cpython-3.15.7-linux-" + arch + "-gnu": one})
			return
		}
		h.fetched.Add(1)
		_, _ = out.Write(h.archive)
	}))
	t.Cleanup(h.Close)
	if at == "" {
		at = h.URL
	}
	t.Setenv(pythonList, h.URL+"/list.json")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	z, _ := gzip.NewWriterLevel(&raw, gzip.NoCompression)
	w := tar.NewWriter(z)
	const variables = "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {'CC': 'cc',\n 'prefix': '/install'}\n"
	for name, content := range map[string][]byte{
		"python/bin/python3.15": self, "python/lib/python3.15/_sysconfigdata__linux_" + runtime.GOARCH + ".py": []byte(variables), // uv rewrites it
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	h.archive = raw.Bytes()
	return h
}

// openPersonal is openBackend for an engine that only its user uses.
func openPersonal(t *testing.T, options json.RawMessage) *Backend {
	t.Helper()
	b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Personal: true, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestAPythonThatIsMissingIsInstalled(t *testing.T) {
	h := newPythonHouse(t, "")
	options := section(t, map[string]any{"start": StartExec})
	b := openPersonal(t, options)
	can := func(b *Backend) executor.Capabilities {
		info, err := b.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Capabilities
	}
	if c := can(b); !slices.Contains(c.PythonDownloads, fakeMinor) || slices.Contains(c.PythonVersions, fakeMinor) {
		t.Fatalf("downloads %q, at hand %q", c.PythonDownloads, c.PythonVersions)
	}
	result, j := run(t, b, executor.Spec{Code: "print(1)", PythonVersion: fakeMinor})
	if got := j.text(executor.Stdout); result.Status != executor.StatusSucceeded || got != "a fake Python [main.py]\n" || result.PythonVersion != fakeMinor+".7" {
		t.Fatalf("%s, %+v, %q, Python %s", result.Status, result.Failure, got, result.PythonVersion)
	}
	told := slices.ContainsFunc(j.events, func(e executor.Event) bool {
		p, ok := e.Body.(executor.Progress)
		return ok && p.Message == "installing Python "+fakeMinor
	})
	if !told {
		t.Errorf("nothing tells of the installation: %+v", j.events)
	}
	if c := can(b); slices.Contains(c.PythonDownloads, fakeMinor) || !slices.Contains(c.PythonVersions, fakeMinor) {
		t.Errorf("afterwards: downloads %q, at hand %q", c.PythonDownloads, c.PythonVersions)
	}
	// It stays, also for a backend that installs none.
	served, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name() + "-2", Options: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = served.Close() })
	for _, spec := range []executor.Spec{{Code: "print(1)", PythonVersion: fakeMinor}, {Code: "print(1)", Image: "python:" + fakeMinor + "-slim"}} {
		for _, b := range []*Backend{b, served} {
			if got, _ := succeeds(t, b, spec); got != "a fake Python [main.py]\n" {
				t.Errorf("%q", got)
			}
		}
	}
	if n := h.fetched.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
}

func TestAPythonIsInstalledWhereTheOperatorAllowsIt(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		personal bool
		set      *bool
		want     bool
	}{{true, nil, true}, {false, nil, false}, {true, &no, false}, {false, &yes, true}} {
		b := &Backend{personal: c.personal, config: Config{PythonDownloads: c.set}}
		inv := inventory{byMinor: map[string]interpreter{"3.12": {Path: "/p", Minor: "3.12"}}}
		b.inventory.Store(&inv)
		list := b.downloads(inv)
		if (len(list) > 0) != c.want || slices.Contains(list, "3.12") {
			t.Errorf("personal %v, set %v: %q", c.personal, c.set, list)
		}
		if got := b.downloadable(executor.Spec{PythonVersion: "3.11"}); (got == "3.11") != c.want {
			t.Errorf("personal %v: Python 3.11 is %q", c.personal, got)
		}
		for _, spec := range []executor.Spec{{}, {PythonVersion: "3.12"}, {PythonVersion: "3.7"}, {PythonVersion: "3.11", Image: "python:3.10"}, {Image: "debian"}} {
			if got := b.downloadable(spec); got != "" {
				t.Errorf("%+v would be %q", spec, got)
			}
		}
	}
	if err := Check("uv", json.RawMessage(`{"python_downloads": "yes"}`)); err == nil || !strings.Contains(err.Error(), "backends.uv.python_downloads: must be true or false") {
		t.Errorf("%v", err)
	}
}

func TestAPythonThatCannotBeInstalledIsAResultThatNamesThoseAtHand(t *testing.T) {
	h := newPythonHouse(t, "http://"+untouched(t, "127.0.0.1"))
	b := openPersonal(t, section(t, nil))
	spec := executor.Spec{Code: "print(1)", PythonVersion: fakeMinor}
	wants := func(field, message string) {
		t.Helper()
		result, j := run(t, b, spec)
		f := result.Failure
		if result.Status != executor.StatusFailed || j.started() != nil || f == nil || f.Phase != executor.PhasePrepare || f.Field != field ||
			!strings.Contains(f.Message, message) || !strings.Contains(f.Message, "Python 3.15 is not on this machine, which has "+b.inventory.Load().minors()[0]) {
			t.Errorf("%s, %+v", result.Status, f)
		}
		if left, _ := os.ReadDir(pythonsDir(b.config)); len(left) > 1 { // the lock
			t.Errorf("%v are left", left)
		}
	}
	wants("python_version", "has no public address")
	if _, err := b.OpenSession(t.Context(), asked("ctx-1", spec)); err == nil || !strings.Contains(err.Error(), "Python 3.15 is not on this machine") {
		t.Errorf("%v", err)
	}
	h.closed.Store(true)
	spec = executor.Spec{Code: "print(1)", Image: "python:" + fakeMinor}
	wants("docker_image", "uv could not install it")
}

// What an installation has left that was killed goes with the next one.
func TestLeftoversOfInstallationsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"of-3.14-1", "of-3.13-2/python/cpython/bin", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"3.13": "of-3.13-2/python/cpython", "of-3.14-1.link": "of-3.14-1/python/cpython"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	sweepPythons(dir)
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"3.13", "of-3.13-2", "other"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q are left, %v", names, err)
	}
}
