package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/store/memory"
)

// The bounds of package sessions.
const (
	lookInterval = 10 * time.Second
	lookAgain    = time.Second
	saveInterval = time.Minute
	maxEnded     = 1000
	maxPreview   = 200
	maxVariables = 1000
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is an Engine on the fake backend, in memory.
type rig struct {
	*Engine
	t     *testing.T
	store executor.Store
	blobs executor.Blobs
	fake  *fake.Backend
}

type setup struct {
	fake    fake.Options
	backend executor.Backend
	options Options
}

// tempDirs holds the folder of each bubble: t.TempDir's clean-up does not run inside one.
var tempDirs sync.Map

// inBubble runs test in a synctest bubble; what it leaves running fails it.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		tempDirs.Store(t, dir)
		test(t)
	})
}

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{t: t, fake: fake.New(s.fake)}
	o := s.options
	if o.Store == nil {
		o.Store = memorystore.New(memorystore.Options{})
	}
	if o.Blobs == nil {
		o.Blobs = openBlobs(t)
	}
	if o.Backends == nil {
		o.Backends = map[string]executor.Backend{"fake": r.fake}
		if s.backend != nil {
			o.Backends["fake"] = s.backend
		}
	}
	if o.Engine == (config.Engine{}) {
		o.Engine = config.Engine{MaxConcurrent: 2, MaxQueued: 10}
	}
	r.store, r.blobs = o.Store, o.Blobs
	r.start(o)
	return r
}

func (r *rig) start(o Options) {
	r.t.Helper()
	var err error
	if r.Engine, err = New(o); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.closeNow() })
}

// closeNow closes without waiting for what runs.
func (r *rig) closeNow() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("now"))
	return r.Close(ctx)
}

func openBlobs(t *testing.T) executor.Blobs {
	t.Helper()
	path, ok := tempDirs.Load(t)
	if !ok {
		path = t.TempDir()
	}
	blobs, err := dirblobs.Open(path.(string))
	if err != nil {
		t.Fatal(err)
	}
	return blobs
}

func as(owner string, scopes ...executor.Scope) context.Context {
	if len(scopes) == 0 {
		scopes = []executor.Scope{executor.ScopeExec, executor.ScopeRead}
	}
	return executor.WithPrincipal(context.Background(), executor.Principal{Owner: owner, Scopes: scopes})
}

// submit runs a program of the fake.
func (r *rig) submit(ctx context.Context, code string, change ...func(*executor.Spec)) executor.Execution {
	r.t.Helper()
	spec := executor.Spec{Code: code}
	for _, f := range change {
		f(&spec)
	}
	x, err := r.Submit(ctx, spec, executor.Input{})
	if err != nil {
		r.t.Fatalf("submit: %v", err)
	}
	return x
}

func durable(s *executor.Spec) { s.Durable = true }

// events follows x to its end.
func (r *rig) events(id string) []executor.Event {
	r.t.Helper()
	var all []executor.Event
	for ev, err := range r.Events(as("root", executor.ScopeAdmin), id, 0) {
		if err != nil {
			r.t.Fatalf("events of %s: %v", id, err)
		}
		all = append(all, ev)
	}
	return all
}

// result waits for x to end and checks its log against the law.
func (r *rig) result(id string) executor.Result {
	r.t.Helper()
	all := r.events(id)
	checkLaw(r.t, id, all)
	return all[len(all)-1].Body.(executor.Finished).Result
}

// checkLaw fails unless events are a legal, finished log.
func checkLaw(t *testing.T, id string, events []executor.Event) {
	t.Helper()
	offsets := map[executor.Stream]int64{}
	started := false
	for i, ev := range events {
		if ev.Seq != uint64(i)+1 {
			t.Errorf("%s: event %d has Seq %d", id, i, ev.Seq)
		}
		_, isQueued := ev.Body.(executor.Queued)
		_, isFinished := ev.Body.(executor.Finished)
		if isQueued != (i == 0) || isFinished != (i == len(events)-1) {
			t.Errorf("%s: event %d of %d is %s", id, i+1, len(events), ev.Body.Kind())
		}
		switch b := ev.Body.(type) {
		case executor.Started:
			started = true
			if b.Handle != nil {
				t.Errorf("%s: the handle left the engine", id)
			}
		case executor.Output:
			if !started {
				t.Errorf("%s: output before started", id)
			}
			if b.Offset != offsets[b.Stream] {
				t.Errorf("%s: %s at offset %d, expected %d", id, b.Stream, b.Offset, offsets[b.Stream])
			}
			offsets[b.Stream] += int64(len(b.Data))
		case executor.Finished:
			if !b.Result.Status.Terminal() {
				t.Errorf("%s: finished with status %q", id, b.Result.Status)
			}
		case executor.Queued, executor.Progress, executor.Display, executor.Unknown:
		}
	}
}

func stdout(events []executor.Event) string {
	var text strings.Builder
	for _, ev := range events {
		if out, ok := ev.Body.(executor.Output); ok && out.Stream == executor.Stdout {
			text.Write(out.Data)
		}
	}
	return text.String()
}

// tarOf makes an archive of path, content pairs.
func tarOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// once is a Source that can be read once, as an upload can.
func once(content []byte) *executor.Source {
	return sourceOf(io.NopCloser(bytes.NewReader(content)))
}

func sourceOf(r io.ReadCloser) *executor.Source {
	opened := false
	return &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
		if opened {
			return nil, errors.New("opened twice")
		}
		opened = true
		return r, nil
	}}
}

func wantCode(t *testing.T, err error, code executor.Code, fields ...string) {
	t.Helper()
	if executor.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, executor.CodeOf(err), code)
	}
	e, _ := errors.AsType[*executor.Error](err)
	var got []string
	for _, f := range e.Fields {
		got = append(got, f.Field)
	}
	if strings.Join(got, " ") != strings.Join(fields, " ") {
		t.Fatalf("error %v names fields %v, want %v", err, got, fields)
	}
}

// wantIdle fails unless nothing holds a place any more.
func (r *rig) wantIdle() {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queue; q.running != 0 || q.queued != 0 || len(q.held) != 0 || len(q.lines) != 0 || len(r.live) != 0 {
		r.t.Errorf("left: running %d, queued %d, held %v, lines %d, live %d", q.running, q.queued, q.held, len(q.lines), len(r.live))
	}
}

// openSessions counts the Sessions whose sandbox is there, as the metric does.
func (r *rig) openSessions() int {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	for _, c := range r.sessions.Collectors() {
		registry.MustRegister(c)
	}
	for _, family := range must(registry.Gather()) {
		if family.GetName() == "python_executor_sessions" {
			return int(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	r.t.Fatal("no metric")
	return 0
}

// wantBlobs fails unless exactly these many blobs exist.
func (r *rig) wantBlobs(n int) {
	r.t.Helper()
	synctest.Wait()
	var keys []string
	for b, err := range r.blobs.List(context.Background(), "") {
		if err != nil {
			r.t.Fatal(err)
		}
		keys = append(keys, b.Key)
	}
	if len(keys) != n {
		r.t.Errorf("blobs %v, want %d", keys, n)
	}
}
