package uvbackend

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/runner/network/networktest"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

// TestMain lets this binary also be a plugin, a runner, and, for some tests, a uv or a Python.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(toldtest.Main(os.Args[2:]))
	}
	if filepath.Base(os.Args[0]) == "uv" {
		fmt.Println("uv 9.9.9 (a test)")
		os.Exit(0)
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "python3") {
		fakePython()
	}
	networktest.Main()
	plugintest.Main(map[string]plugin.Factory{"uv": Factory})
	leaktest.Main(m)
}

// folder returns a temporary folder that every uid may enter. t.TempDir is closed to the uids of slots.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "uvbackend-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// section returns a configuration with folders of its own and with the settings more, as JSON.
func section(t testing.TB, more map[string]any) json.RawMessage {
	t.Helper()
	cache := filepath.Join(folder(t), "cache")
	seedMechanisms(t, cache)
	set := map[string]any{"cache_dir": cache}
	for k, v := range more {
		set[k] = v
	}
	raw, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// foundMechanisms returns what findMechanisms keeps for the default configuration on this machine. It is empty without a sandbox.
var foundMechanisms = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "uvbackend-mechanisms-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "mechanisms.json")
	findMechanisms(Default(), file)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
})

// seedMechanisms spares a backend over the new folder cache the probes of this machine, which start several processes.
func seedMechanisms(t testing.TB, cache string) {
	t.Helper()
	raw, err := foundMechanisms()
	if err == nil && raw != nil {
		err = errors.Join(os.Mkdir(cache, 0o755), os.WriteFile(filepath.Join(cache, "mechanisms.json"), raw, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openBackend makes a backend with folders of its own. The backend is closed when t ends.
func openBackend(t testing.TB, more map[string]any) *Backend {
	t.Helper()
	b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: section(t, more)})
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

// journal is a Sink that keeps all events and artifacts.
type journal struct {
	mu     sync.Mutex
	events []executor.Event
	files  map[string]string
	// on is called with each event, on the emitting goroutine.
	on func(executor.Event) error
}

func (j *journal) Emit(e executor.Event) error {
	j.mu.Lock()
	j.events = append(j.events, e.Clone())
	j.mu.Unlock()
	if j.on != nil {
		return j.on(e)
	}
	return nil
}

func (j *journal) Artifact(h *tar.Header, r io.Reader) error {
	raw, err := io.ReadAll(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.files == nil {
		j.files = map[string]string{}
	}
	j.files[h.Name] = string(raw)
	return err
}

func (j *journal) text(stream executor.Stream) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	for _, e := range j.events {
		if o, ok := e.Body.(executor.Output); ok && o.Stream == stream {
			b.Write(o.Data)
		}
	}
	return b.String()
}

func (j *journal) started() *executor.Started {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if s, ok := e.Body.(executor.Started); ok {
			return &s
		}
	}
	return nil
}

var jobs struct {
	sync.Mutex
	n int
}

// job returns a Job with limits such as an Engine gives it.
func job(spec executor.Spec) executor.Job {
	jobs.Lock()
	defer jobs.Unlock()
	jobs.n++
	return executor.Job{
		ID: fmt.Sprintf("exe_%026d", jobs.n), Owner: "test", Attempt: 1, Spec: spec,
		Limits: executor.Limits{
			Timeout: 300e9, MemoryBytes: 512 << 20, DiskBytes: 512 << 20, CPUShares: 1024, PIDs: 128, OutputBytes: 64 << 20, KillGrace: 1e9,
		},
	}
}

// run runs spec. It fails the test if Run returns an error.
func run(t testing.TB, b executor.Backend, spec executor.Spec) (executor.Result, *journal) {
	t.Helper()
	j := &journal{}
	result, err := b.Run(t.Context(), job(spec), j)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return result, j
}

// succeeds runs spec and returns what it printed.
func succeeds(t testing.TB, b executor.Backend, spec executor.Spec) (string, executor.Result) {
	t.Helper()
	result, j := run(t, b, spec)
	if result.Status != executor.StatusSucceeded {
		t.Fatalf("status %s, failure %+v, stderr %s", result.Status, result.Failure, j.text(executor.Stderr))
	}
	return j.text(executor.Stdout), result
}
