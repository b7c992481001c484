package dockerbackend

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// runnerKey is the option with the path of the runner of a backend under test. The test program itself cannot serve as a runner
// in containers. answersKey is that of a file with the interpreters of the test images, which a backend would look for in a container.
const runnerKey, answersKey = "test_runner", "test_interpreters"

// TestMain runs this binary as a plugin if it is started as one.
func TestMain(m *testing.M) {
	plugintest.Main(map[string]plugin.Factory{"docker": func(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
		return testFactory(ctx, c)
	}})
	dockertest.Main(leaving{m})
}

// leaving is a testing.M that removes prepared images and the runner after the tests.
type leaving struct{ m *testing.M }

func (l leaving) Run() int {
	_ = os.Setenv("UV_HTTP_TIMEOUT", "600") // pip gives an index 15 s, which a busy machine may need
	code := l.m.Run()
	if err := closeCommon(); err != nil {
		fmt.Fprintln(os.Stderr, "close the common backend:", err)
		code = max(code, 1)
	}
	if err := forgetAllPrepared(); err != nil {
		fmt.Fprintln(os.Stderr, "remove prepared images:", err)
		code = max(code, 1)
	}
	if err := os.RemoveAll(runnerDir); err != nil { // the path is empty if no runner was built
		fmt.Fprintln(os.Stderr, "remove the runner:", err)
		code = max(code, 1)
	}
	return code
}

// runnerDir is the folder of the runner under test.
var runnerDir string

// testFactory makes a backend with the runner that its options name.
func testFactory(ctx context.Context, c plugin.Configure) (*Backend, error) {
	var options map[string]any
	if err := json.Unmarshal(c.Options, &options); err != nil {
		return nil, err
	}
	path, _ := options[runnerKey].(string)
	answers, _ := options[answersKey].(string)
	delete(options, runnerKey)
	delete(options, answersKey)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if known, err := os.ReadFile(answers); err == nil && c.DataDir != "" {
		if err := os.WriteFile(filepath.Join(c.DataDir, filepath.Base(answers)), known, 0o600); err != nil {
			return nil, err
		}
	}
	if c.Options, err = json.Marshal(options); err != nil {
		return nil, err
	}
	return newBackend(ctx, c, newProgram(content, nil))
}

// testRunner builds the runner once, as make build does.
var testRunner = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dockerbackend-runner-")
	if err != nil {
		return "", err
	}
	runnerDir = dir
	path := filepath.Join(dir, "runner")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/python-executor/python-executor/core/runner/cmd/python-executor-runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the runner: %w\n%s", err, out)
	}
	return path, nil
})

// asked is done when interpreters.json in runnerDir has the interpreters of the test images.
var asked sync.Once

// testAnswers returns the file with the interpreters of the test images.
func testAnswers(t testing.TB, options json.RawMessage) string {
	asked.Do(func() {
		b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: "asks-" + random(), DataDir: runnerDir, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{dockertest.Python(t), dockertest.Bare(t)} {
			if _, _, err := b.look(t.Context(), name, nothing); err != nil {
				t.Error(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(runnerDir, "interpreters.json")
}

// section returns a configuration with the tests' daemon and images and with more settings, as JSON.
func section(t testing.TB, more map[string]any) json.RawMessage {
	t.Helper()
	runner, err := testRunner()
	if err != nil {
		t.Fatal(err)
	}
	image := dockertest.Python(t)
	set := map[string]any{
		"host": dockertest.Host(t), "default_image": image, "images": []string{"*", "*/*", "*/*/*", "127.0.0.1:*/**"}, runnerKey: runner, "silence_seconds": 600,
		"pool": map[string]any{"min_idle": 0, "sessions": 0}, // a container costs half a second of a processor
	}
	raw, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	set[answersKey] = testAnswers(t, raw)
	for k, v := range more {
		set[k] = v
	}
	if raw, err = json.Marshal(set); err != nil {
		t.Fatal(err)
	}
	return raw
}

// common is the backend of the tests that only run programs.
var common struct {
	once sync.Once
	*Backend
}

// commonBackend returns a backend with the settings of openBackend, which other tests use at the same time.
func commonBackend(t testing.TB) *Backend {
	t.Helper()
	common.once.Do(func() {
		options := section(t, nil)
		dir, err := os.MkdirTemp(runnerDir, "common-")
		if err == nil {
			common.Backend, err = testFactory(context.Background(), plugin.Configure{Name: "docker", Instance: "common-" + random(), DataDir: dir, Options: options})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return common.Backend
}

// closeCommon closes the common backend, of which nothing may be left.
func closeCommon() error {
	b := common.Backend
	if b == nil {
		return nil
	}
	err := errors.Join(removeResults(b), b.Close())
	d, failed := dial(context.Background(), b.config.Host)
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer d.close() //nolint:errcheck // read only
	found, failed := objectsOf(d, b.place.Instance)
	if len(found) > 0 {
		failed = fmt.Errorf("left in the daemon: %v", found)
	}
	return errors.Join(err, failed)
}

// openBackend makes a backend with an installation of its own, and closes it with t. After that nothing of it may be left.
func openBackend(t testing.TB, more map[string]any) *Backend {
	t.Helper()
	return backendThatLogs(t, more, nil)
}

// backendThatLogs does the same as openBackend, with a log; nil means none.
func backendThatLogs(t testing.TB, more map[string]any, log *slog.Logger) *Backend {
	t.Helper()
	b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: instance(t), DataDir: t.TempDir(), Options: section(t, more), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		removeEnded(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// removeEnded removes the kept Results, as an Engine does once an end is in its log.
func removeEnded(t testing.TB, b *Backend) {
	t.Helper()
	if err := removeResults(b); err != nil {
		t.Error(err)
	}
}

func removeResults(b *Backend) (err error) {
	b.results.mu.Lock()
	var ids []string
	for _, k := range b.results.kept {
		ids = append(ids, k.id)
	}
	b.results.mu.Unlock()
	for _, id := range ids {
		err = errors.Join(err, b.Remove(context.Background(), id))
	}
	return err
}

// instance returns the id of an installation of this test. When the test has ended, the daemon must have none of its objects.
func instance(t testing.TB) string {
	t.Helper()
	id := t.Name() + "-" + random()
	t.Cleanup(func() {
		for _, left := range objects(t, id) {
			t.Errorf("left in the daemon: %s", left)
		}
	})
	return id
}

// objects lists the objects of an installation in the daemon.
func objects(t testing.TB, instance string) []string {
	t.Helper()
	d, err := dial(context.Background(), dockertest.Host(t)) // the test has ended
	if err != nil {
		t.Fatal(err)
	}
	defer d.close() //nolint:errcheck // read only
	found, err := objectsOf(d, instance)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func objectsOf(d *daemon, instance string) (found []string, err error) {
	ctx, labels := context.Background(), map[string]string{labelInstance: instance}
	list, err := d.containers(ctx, labels)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		found = append(found, fmt.Sprintf("container %s (%s, %s)", short(c.ID), c.Labels[labelKind], c.State))
	}
	volumes, err := d.volumes(ctx, labels)
	for _, v := range volumes {
		found = append(found, "volume "+v.Name)
	}
	n := newNetworks(d, "", instance, nil)
	if d.findNetwork(ctx, n.own) == nil {
		found = append(found, "network "+n.own)
	}
	return found, err
}

// job returns a job of spec with the limits that an engine sets by default.
func job(spec executor.Spec) executor.Job {
	return executor.Job{
		ID: "exe_" + random(), Owner: "test", Attempt: 1, Spec: spec,
		Limits: executor.Limits{
			Timeout: 5 * time.Minute, MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 1024, PIDs: 256, OutputBytes: 64 << 20, KillGrace: time.Second,
		},
	}
}

// journal is a Sink that keeps output and events.
type journal struct {
	mu       sync.Mutex
	stdout   strings.Builder
	stderr   strings.Builder
	started  *executor.Started
	progress []executor.Progress
	on       func(executor.Event) error
}

// Emit implements executor.Sink.
func (j *journal) Emit(e executor.Event) error {
	j.mu.Lock()
	switch v := e.Body.(type) {
	case executor.Output:
		if v.Stream == executor.Stdout {
			j.stdout.Write(v.Data)
		} else {
			j.stderr.Write(v.Data)
		}
	case executor.Started:
		j.started = &v
	case executor.Progress:
		j.progress = append(j.progress, v)
	}
	j.mu.Unlock()
	if j.on != nil {
		return j.on(e)
	}
	return nil
}

// Artifact implements executor.Sink.
func (j *journal) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// succeeds runs spec and returns its output. It then removes the Execution, as an Engine does. In benchmarks the removal runs
// in the background.
func succeeds(t testing.TB, b executor.Backend, spec executor.Spec) (string, executor.Result) {
	t.Helper()
	var j journal
	x := job(spec)
	r, err := b.Run(t.Context(), x, &j)
	removed := make(chan error, 1)
	go func() { removed <- b.Remove(context.WithoutCancel(t.Context()), x.ID) }()
	if _, timed := t.(*testing.B); timed {
		t.Cleanup(func() { <-removed })
	} else if err := <-removed; err != nil {
		t.Error(err)
	}
	if err != nil || r.Status != executor.StatusSucceeded {
		t.Fatalf("%v; %+v %+v; stderr %q", err, r, r.Failure, j.stderr.String())
	}
	return j.stdout.String(), r
}

// abandon ends this backend without cleaning up: to the daemon it looks as if the process had died. No other call may
// follow.
func (b *Backend) abandon() {
	b.jobs.Close(executor.ErrCallerGone)
	b.leaveSessions(true)
	b.stop(backend.ErrClosed)
	b.wg.Wait()
	b.interpreters.asking.Wait()
	b.pool.close()
	b.cleaner.wait()
	_ = b.daemon.close() // Close never fails
}
