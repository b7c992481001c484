package dockerbackend

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// process starts a plugin process of an installation.
func process(t *testing.T, instance, dir string, options json.RawMessage) *plugintest.Plugin {
	t.Helper()
	p, err := plugintest.Start(t, plugin.Configure{Name: "docker", Instance: instance, DataDir: dir, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// begun is a Run that is in progress and has printed something.
type begun struct {
	journal
	job    executor.Job
	result executor.Result
	err    error
	ended  chan struct{}
}

// begin starts a Run of spec and returns when its output contains text.
func begin(t *testing.T, b executor.Backend, spec executor.Spec, text string) *begun {
	t.Helper()
	r := &begun{job: job(spec), ended: make(chan struct{})}
	said := make(chan struct{})
	once := sync.OnceFunc(func() { close(said) })
	r.on = func(executor.Event) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if strings.Contains(r.stdout.String(), text) {
			once()
		}
		return nil
	}
	go func() {
		defer close(r.ended)
		r.result, r.err = b.Run(context.WithoutCancel(t.Context()), r.job, r)
	}()
	select {
	case <-said:
	case <-r.ended:
		t.Fatalf("the program ended before it printed %q: %+v, %v", text, r.result, r.err)
	}
	return r
}

// resume returns the offsets up to which the log of r has the output.
func (r *begun) resume() executor.Resume {
	r.mu.Lock()
	defer r.mu.Unlock()
	return executor.Resume{Handle: r.started.Handle, Stdout: int64(r.stdout.Len()), Stderr: int64(r.stderr.Len())}
}

// gate is a file in the container for which programs wait.
const gate = "/tmp/gate"

// waits is the part of a program that waits for gate.
const waits = `
import os, time
while not os.path.exists("` + gate + `"):
    time.sleep(0.01)
`

// open lets the program of r go on after waits.
func (r *begun) open(t *testing.T) {
	t.Helper()
	var h handle
	if err := json.Unmarshal(r.started.Handle, &h); err != nil {
		t.Fatal(err)
	}
	dockertest.Touch(t, h.Container, gate)
}

// counter is a program that prints numbers also without a client, more output than fits into a window, and ends after gate is there.
const counter = `
import sys
print("one", flush=True)
sys.stdin.readline()
for i in range(300_000):
    print(i)
` + waits + `
print("two", file=sys.stderr)
sys.exit(7)
`

func TestAProgramOutlivesAKillOfItsPlugin(t *testing.T) {
	t.Parallel()
	id, dir, options := instance(t), t.TempDir(), section(t, map[string]any{"silence_seconds": 60})
	first := process(t, id, dir, options)
	r := begin(t, first.Backend, executor.Spec{Code: counter}, "one")
	first.Kill()
	<-r.ended
	if executor.CodeOf(r.err) != executor.Unavailable {
		t.Errorf("Run returned %+v, %v", r.result, r.err)
	}
	next := process(t, id, dir, options)
	r.open(t)
	var rest journal
	result, err := next.Backend.Attach(t.Context(), r.job, r.resume(), &rest)
	if err != nil || result.Status != executor.StatusFailed || result.ExitCode == nil || *result.ExitCode != 7 || result.PythonVersion == "" || result.ImageDigest == "" {
		t.Errorf("%+v, %v", result, err)
	}
	var want strings.Builder
	want.WriteString("one\n")
	for i := range 300_000 {
		want.WriteString(itoa(i) + "\n")
	}
	if got := r.stdout.String() + rest.stdout.String(); got != want.String() {
		t.Errorf("%d bytes of output, want %d", len(got), want.Len())
	}
	if got := rest.stderr.String(); got != "two\n" {
		t.Errorf("stderr is %q", got)
	}
	if err := next.Backend.Remove(t.Context(), r.job.ID); err != nil {
		t.Error(err)
	}
	if _, err := next.Backend.Attach(t.Context(), r.job, r.resume(), &journal{}); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("Attach to a removed Execution: %v", err)
	}
	noneOfTheDead(t, id)
}

// TestAResultIsThereUntilItIsRemoved: a client that received it may have died before writing it to a log.
func TestAResultIsThereUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	options := section(t, map[string]any{"silence_seconds": 60})
	kill := func(t *testing.T, id, dir string) (first executor.Backend, die func() executor.Backend) {
		p := process(t, id, dir, options)
		return p.Backend, func() executor.Backend {
			p.Kill()
			return process(t, id, dir, options).Backend
		}
	}
	here := func(end func(*testing.T, *Backend)) func(t *testing.T, id, dir string) (executor.Backend, func() executor.Backend) {
		return func(t *testing.T, id, dir string) (executor.Backend, func() executor.Backend) {
			start := func() *Backend {
				b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: id, DataDir: dir, Options: options})
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
			first := start()
			return first, func() executor.Backend {
				if end == nil {
					return first
				}
				end(t, first)
				return start()
			}
		}
	}
	for name, start := range map[string]func(t *testing.T, id, dir string) (executor.Backend, func() executor.Backend){
		"its plugin was killed": kill,
		"its core was killed": here(func(t *testing.T, b *Backend) {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}),
		"all are there": here(nil),
	} {
		t.Run(name, func(t *testing.T) {
			id, dir := instance(t), t.TempDir()
			b, die := start(t, id, dir)
			j := job(executor.Spec{Code: "import sys; open('a', 'w').write('kept'); print('out'); sys.exit(3)", Outputs: []string{"a"}})
			var log journal
			want, err := b.Run(t.Context(), j, &log)
			if err != nil || want.ExitCode == nil || *want.ExitCode != 3 || len(want.Artifacts) != 1 {
				t.Fatalf("%+v, %v", want, err)
			}
			for again := range 2 {
				if again == 0 {
					b = die()
				}
				var rest journal
				got, err := b.Attach(t.Context(), j, executor.Resume{Handle: log.started.Handle, Stdout: 4}, &rest)
				want.Phases, got.Phases = executor.Phases{}, executor.Phases{}
				if err != nil || !reflect.DeepEqual(got, want) || rest.stdout.String() != "" {
					t.Errorf("%+v, %v, %q; want %+v", got, err, rest.stdout.String(), want)
				}
			}
			if err := b.Remove(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
			if left := containersOf(t, id); len(left) != 0 {
				t.Errorf("left in the daemon: %v", left)
			}
			if _, err := b.Attach(t.Context(), j, executor.Resume{Handle: log.started.Handle, Stdout: 4}, &journal{}); executor.CodeOf(err) != executor.NotFound {
				t.Errorf("Attach to a removed Execution: %v", err)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "claims", "*")); len(files) != 0 {
				t.Errorf("claims: %v", files)
			}
		})
	}
}

func TestAResultThatNobodyRemovesGoesInTime(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"silence_seconds": 600})
	ids := make([]string, 3)
	for i := range ids {
		b.results.max = 2
		j := job(executor.Spec{Code: "print(1)"})
		ids[i] = j.ID
		if r, err := b.Run(t.Context(), j, &journal{}); err != nil || r.Status != executor.StatusSucceeded {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	left := func(n int, when string) {
		t.Helper()
		b.cleaner.wait()
		if got := len(containersOf(t, b.place.Instance)); got != n || b.results.count() != n || len(b.claims.all()) != n {
			t.Errorf("%s: %d containers, %d results, %d claims; want %d of each", when, got, b.results.count(), len(b.claims.all()), n)
		}
	}
	left(2, "the oldest has made room")
	r := reaper{b: b, since: map[string]time.Time{}}
	oldest, newest := b.results.kept[0].since, b.results.kept[1].since
	for _, step := range []struct {
		now  time.Time
		left int
		when string
	}{
		{oldest.Add(b.config.silence()), 2, "within their time"},
		{newest.Add(b.config.silence() + 1), 0, "after their time"},
	} {
		if _, err := r.sweep(t.Context(), step.now); err != nil {
			t.Fatal(err)
		}
		left(step.left, step.when)
	}
	for _, id := range ids {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// TestAnotherAttemptTakesThePlaceOfTheOneBefore also if the earlier attempt was not removed.
func TestAnotherAttemptTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	j := job(executor.Spec{Code: "print(1)"})
	for range 2 {
		if r, err := b.Run(t.Context(), j, &journal{}); err != nil || r.Status != executor.StatusSucceeded {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	b.cleaner.wait()
	if got := len(containersOf(t, b.place.Instance)); got != 1 || b.results.count() != 1 {
		t.Errorf("%d containers, %d results", got, b.results.count())
	}
}

// noneOfTheDead waits until an installation has no containers of lives that have ended.
func noneOfTheDead(t *testing.T, instance string) {
	t.Helper()
	awaittest.Until(t, "the end of what the killed plugin has left", func() bool {
		for _, c := range containersOf(t, instance) {
			if !bootAlive(c.Labels[labelBoot]) {
				return false
			}
		}
		return true
	})
}

func itoa(i int) string {
	raw, _ := json.Marshal(i) // marshalling a number never fails
	return string(raw)
}

func TestRemoveEndsWhatAnEarlierLifeHasLeft(t *testing.T) {
	t.Parallel()
	id, dir, options := instance(t), t.TempDir(), section(t, map[string]any{"silence_seconds": 600})
	first := process(t, id, dir, options)
	r := begin(t, first.Backend, executor.Spec{Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
	first.Kill()
	<-r.ended
	next := process(t, id, dir, options)
	for range 2 {
		if err := next.Backend.Remove(t.Context(), r.job.ID); err != nil {
			t.Error(err)
		}
	}
	if left := containersOf(t, id); len(left) != 0 {
		t.Errorf("left in the daemon: %v", left)
	}
}

// containersOf lists the containers of an installation.
func containersOf(t *testing.T, instance string) []containerInfo {
	t.Helper()
	d, err := dial(context.Background(), dockertest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close() //nolint:errcheck // read only
	list, err := d.containers(context.Background(), map[string]string{labelInstance: instance})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAContainerThatIsKilledIsUnavailableAndNeverAHang(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	r := begin(t, b, executor.Spec{Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
	var h handle
	if err := json.Unmarshal(r.started.Handle, &h); err != nil {
		t.Fatal(err)
	}
	if err := b.daemon.remove(t.Context(), h.Container); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	if executor.CodeOf(r.err) != executor.Unavailable {
		t.Errorf("%+v, %v", r.result, r.err)
	}
	if err := b.Remove(t.Context(), r.job.ID); err != nil {
		t.Error(err)
	}
}

func TestContainersThatDieWhileTheyWaitAreReplaced(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"pool": map[string]any{"min_idle": 1, "sessions": 0}})
	awaittest.Until(t, "a container that waits", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		died := false
		for _, f := range b.pool.shelves {
			for _, s := range f.idle {
				died = true
				if err := b.daemon.remove(t.Context(), s.id); err != nil {
					t.Error(err)
				}
			}
		}
		return died
	})
	if out, _ := succeeds(t, b, executor.Spec{Code: "print(2)"}); out != "2\n" {
		t.Errorf("got %q", out)
	}
}

// removeRunner removes the runner's volume, which no container uses. The daemon may release it later than it forgets the last of them.
func removeRunner(t *testing.T, b *Backend) {
	t.Helper()
	awaittest.Until(t, "the removal of the runner's volume", func() bool { return b.daemon.removeVolume(t.Context(), b.place.Volume) == nil })
}

func TestTheRunnersVolumeIsFilledAgainWhenSomebodyHasRemovedIt(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	b.cleaner.wait()
	removeRunner(t, b)
	if out, _ := succeeds(t, b, executor.Spec{Code: "print(2)"}); out != "2\n" {
		t.Errorf("got %q", out)
	}
}

func TestAnImageWithoutShellAndTarRunsPrograms(t *testing.T) {
	t.Parallel()
	out, r := succeeds(t, commonBackend(t), executor.Spec{Image: dockertest.Bare(t), Code: "import os, sys; print(sys.version_info[:2], os.path.exists('/bin/sh'))"})
	if out != "(3, 11) False\n" || r.PythonVersion == "" {
		t.Errorf("%q, %q", out, r.PythonVersion)
	}
}

func TestNothingOfAProgramIsThereForTheNext(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"pool": map[string]any{"min_idle": 1, "sessions": 0}})
	plant := executor.Spec{Env: map[string]string{"CANARY": "canary"}, Code: `
import os, subprocess, sys
for folder in ["/work", "/tmp", "/dev/shm"]:
    open(folder + "/canary", "w").write("canary")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", "canary"], start_new_session=True)
`}
	look := executor.Spec{Code: `
import glob, os
print([f + "/" + n for f in ["/work", "/tmp", "/dev/shm"] for n in os.listdir(f) if n == "canary"], os.environ.get("CANARY"))
print(sum(b"canary" in open(p, "rb").read() for p in glob.glob("/proc/[0-9]*/cmdline") if os.access(p, os.R_OK)))
`}
	succeeds(t, b, plant)
	if out, _ := succeeds(t, b, look); out != "[] None\n0\n" {
		t.Errorf("the next Execution sees %q", out)
	}
}

func TestARunnerIsLetGoWhenTheCallerGoesAway(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &begun{job: job(executor.Spec{Code: "print('up', flush=True)" + waits + "print('down')"}), ended: make(chan struct{})}
	r.on = func(e executor.Event) error {
		if _, ok := e.Body.(executor.Output); ok {
			cancel(executor.ErrCallerGone)
		}
		return nil
	}
	if _, err := b.Run(ctx, r.job, r); executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("Run returned %v", err)
	}
	r.on = nil
	r.open(t)
	result, err := b.Attach(t.Context(), r.job, r.resume(), r)
	if err != nil || result.Status != executor.StatusSucceeded || r.stdout.String() != "up\ndown\n" {
		t.Errorf("%+v, %v, %q", result, err, r.stdout.String())
	}
	if err := b.Remove(t.Context(), r.job.ID); err != nil {
		t.Error(err)
	}
}

func TestCloseIsIdempotentAndNothingRunsAfterIt(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Run(t.Context(), job(executor.Spec{Code: "print(1)"}), &journal{}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestAnEmbeddedBackendEndsWhatRuns(t *testing.T) {
	t.Parallel()
	b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: instance(t), Embedded: true, Options: section(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	r := begin(t, b, executor.Spec{Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-r.ended
	if r.err != nil || r.result.Status != executor.StatusKilled {
		t.Errorf("%+v, %v", r.result, r.err)
	}
	if idle, making, _ := b.pool.counts(); idle+making != 0 {
		t.Errorf("%d sandboxes wait or are being made after Close", idle+making)
	}
}
