package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestIdsSortInTheOrderTheyWereMade(t *testing.T) {
	t.Parallel()
	var ids idSource
	now := time.UnixMilli(1_800_000_000_000)
	last := ""
	for i := range 10000 {
		if i%100 == 0 {
			now = now.Add(time.Duration(i%300-100) * time.Millisecond) // the clock goes back, too
		}
		id := ids.next(now)
		if !idForm().MatchString(id) || id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	var other idSource
	if a, b := other.next(now), other.next(now); a[:14] != b[:14] || a == b {
		t.Errorf("%s, %s", a, b)
	}
}

func TestIdsAreDifferentWhoeverAsks(t *testing.T) {
	t.Parallel()
	var ids idSource
	var seen sync.Map
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if _, twice := seen.LoadOrStore(ids.next(time.Now()), true); twice {
					t.Error("an id came twice")
				}
			}
		})
	}
	wg.Wait()
}

// TestTheDigestKnowsEveryField changes each field of a Spec in turn.
func TestTheDigestKnowsEveryField(t *testing.T) {
	t.Parallel()
	base := must(specDigest("a", executor.Spec{}))
	apart := map[string]bool{"IdempotencyKey": true, "Durable": true} // what may differ between repetitions
	seen := map[string]string{base: "nothing"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[executor.Spec]()) {
		var s executor.Spec
		set(t, reflect.ValueOf(&s).Elem().FieldByIndex(field.Index))
		digest := must(specDigest("a", s))
		if apart[field.Name] {
			if digest != base {
				t.Errorf("%s changes the digest", field.Name)
			}
			continue
		}
		if twin, ok := seen[digest]; ok {
			t.Errorf("%s has the digest of %s", field.Name, twin)
		}
		seen[digest] = field.Name
	}
	if must(specDigest("b", executor.Spec{})) == base {
		t.Error("the owner does not change the digest")
	}
	same := executor.Spec{Language: executor.LanguagePython, Interpreter: executor.InterpreterEnvironment, Args: []string{}, Env: map[string]string{}}
	if must(specDigest("a", same)) != base {
		t.Error("a default that is spelled out changes the digest")
	}
}

func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(7)
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"x"}))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			set(t, v.Field(i))
		}
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

func TestDigestsOfInputsAreComparedWhereKnown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"s none none", "s none none", true},
		{"s sha256:1 none", "s sha256:1 none", true},
		{"s sha256:1 none", "s sha256:2 none", false},
		{"s unknown none", "s sha256:2 none", true},
		{"s unknown none", "s none none", false},
		{"s none none", "s none unknown", false},
		{"s unknown unknown", "s unknown sha256:1", true},
		{"s none none", "r none none", false},
		{"", "s none none", false},
	} {
		if sameRequest(test.a, test.b) != test.same || sameRequest(test.b, test.a) != test.same {
			t.Errorf("%q and %q: want %v", test.a, test.b, test.same)
		}
	}
}

func TestTheQueueTakesTurnsAndHonoursBackends(t *testing.T) {
	t.Parallel()
	q := newQueue(3, 100, 0)
	q.capacity["small"] = 1
	names := map[*place]string{}
	enter := func(name, owner, backend string) *place {
		p, why := q.reserve(owner, backend, startNow)
		if p == nil {
			t.Fatal(why)
		}
		names[p] = name
		if p.state == reserved {
			q.wait(p, false)
		}
		return p
	}
	s1 := enter("s1", "a", "small")
	s2 := enter("s2", "a", "small")
	b1 := enter("b1", "a", "big")
	// b1 passes s2, which cannot start in any case.
	if s1.state != granted || s2.state != waiting || b1.state != granted || q.next() != nil {
		t.Fatalf("states %v %v %v", s1.state, s2.state, b1.state)
	}
	b2 := enter("b2", "b", "big")
	enter("x1", "x", "big")
	enter("x2", "x", "big")
	enter("y1", "y", "big")
	enter("a2", "a", "big")
	var order []string
	for running := []*place{b1, b2}; len(running) > 0; running = running[1:] {
		q.release(running[0])
		q.release(running[0])
		for p := q.next(); p != nil; p = q.next() {
			order = append(order, names[p])
			running = append(running, p)
		}
	}
	// a's turn comes first, then x and y: an owner's second place waits for the others' first.
	if got := strings.Join(order, " "); got != "a2 x1 y1 x2" {
		t.Errorf("order %s", got)
	}
	q.release(s1)
	if p := q.next(); p != s2 {
		t.Error("s2 was forgotten")
	}
	q.release(s2)
	if q.running+q.queued+len(q.held)+len(q.lines) != 0 {
		t.Errorf("left in the queue: %+v", q)
	}
}

// TestMetricsShowWhatHappened also runs the collector of the backends' own metrics.
func TestMetricsShowWhatHappened(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := newRig(t, setup{fake: fake.Options{Capacity: 7}, options: Options{Registerer: registry, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}}})
		r.submit(t.Context(), "sleep 1s")
		r.submit(t.Context(), "exit 1")
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		synctest.Wait()
		values := func() map[string]float64 {
			all := map[string]float64{}
			for _, family := range must(registry.Gather()) {
				for _, m := range family.Metric {
					name := family.GetName()
					for _, l := range m.Label {
						name += " " + l.GetValue()
					}
					all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
			return all
		}
		for name, want := range map[string]float64{
			"python_executor_queue_length": 1, "python_executor_slots": 1, "python_executor_running fake": 1,
			"python_executor_refused_total": 1, "python_executor_backend_up fake": 1,
		} {
			if got, ok := values()[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		time.Sleep(time.Minute)
		for name, want := range map[string]float64{
			"python_executor_executions_total fake succeeded": 1, "python_executor_executions_total fake failed": 1,
			"python_executor_phase_seconds fake run": 1, "python_executor_phase_seconds fake queue": 2,
			"python_executor_backend_runs fake": 2, "python_executor_running fake": 0,
		} {
			if got, ok := values()[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if err := r.closeNow(); err != nil {
			t.Error(err)
		}
		if len(must(registry.Gather())) != 0 {
			t.Error("Close leaves metrics registered")
		}
	})
}

// hungBackend answers nothing.
type hungBackend struct{ runFunc }

func (hungBackend) Info(ctx context.Context) (executor.Info, error) {
	<-ctx.Done()
	<-time.After(time.Hour) // and takes no notice
	return executor.Info{}, ctx.Err()
}

func TestABackendThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		good := fake.New(fake.Options{})
		good.SetHealth("disk full")
		r := newRig(t, setup{options: Options{DefaultBackend: "hung", Backends: map[string]executor.Backend{"hung": hungBackend{}, "ill": good}}})
		time.Sleep(infoFailed) // Start has asked, too
		begin := time.Now()
		_, err := r.Submit(t.Context(), executor.Spec{Code: "x"}, executor.Input{})
		wantCode(t, err, executor.Unavailable)
		if waited := time.Since(begin); waited != infoTimeout {
			t.Errorf("it took %s", waited)
		}
		_, err = r.Submit(t.Context(), executor.Spec{Code: "x", Backend: "ill"}, executor.Input{})
		wantCode(t, err, executor.Unavailable)
		if down, _ := errors.AsType[*executor.Error](err); !strings.Contains(down.Message, "disk full") || down.RetryAfter != downRetryAfter {
			t.Errorf("error %v, to try again after %s", err, down.RetryAfter)
		}
		infos := must(r.Backends(t.Context()))
		names := []string{infos[0].Name, infos[1].Name}
		if !slices.Equal(names, []string{"hung", "ill"}) || infos[0].Healthy || infos[0].Message == "" {
			t.Errorf("infos %+v", infos)
		}
		_, err = r.Backends(as("a", executor.ScopeExec))
		wantCode(t, err, executor.Denied)
		time.Sleep(infoFailed)
		begin = time.Now()
		if err := r.Ready(t.Context()); executor.CodeOf(err) != executor.Unavailable || time.Since(begin) != readyTimeout || !strings.Contains(err.Error(), "hung") {
			t.Errorf("Ready says %v after %s", err, time.Since(begin))
		}
		time.Sleep(infoTimeout)
		if err := r.closeNow(); err == nil || !strings.Contains(err.Error(), "Info of backend hung") {
			t.Errorf("Close says %v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestTheDefaultBackendIsListedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{DefaultBackend: "uv", Backends: map[string]executor.Backend{
			"docker": fake.New(fake.Options{}), "scripts": fake.New(fake.Options{}), "uv": fake.New(fake.Options{}),
		}}})
		var names []string
		for _, info := range must(r.Backends(t.Context())) {
			names = append(names, info.Name)
		}
		if !slices.Equal(names, []string{"uv", "docker", "scripts"}) {
			t.Errorf("%v", names)
		}
	})
}

func TestReadyAsksTheBackendAnew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		backend := fake.New(fake.Options{})
		r := newRig(t, setup{options: Options{DefaultBackend: "only", Backends: map[string]executor.Backend{"only": backend}}})
		for _, why := range []string{"", "disk full", ""} {
			backend.SetHealth(why)
			err := r.Ready(t.Context())
			if ready := err == nil; ready != (why == "") {
				t.Errorf("with the message %q Ready says %v", why, err)
			}
		}
	})
}

func TestNamesOfArtifactsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const length = 512 << 10
	a := &artifacts{tar: tar.NewWriter(io.Discard), names: map[string]bool{}, limit: 1}
	for i := range 8 {
		name := strings.Repeat("x", length-1) + strconv.Itoa(i)
		if err := a.add(&tar.Header{Name: name}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	err := a.add(&tar.Header{Name: "y"}, strings.NewReader(""))
	if executor.CodeOf(err) != executor.Exhausted || !strings.Contains(err.Error(), "names of at most 4194304 bytes together") || len(a.list) != 8 {
		t.Errorf("%v, %d files", err, len(a.list))
	}
}

func TestAFullDiskIsNotCalledALimitOfTheExecution(t *testing.T) {
	t.Parallel()
	full := &executor.Error{Code: executor.Exhausted, Message: "no space left on the disk", Err: syscall.ENOSPC}
	a := &artifacts{engine: &Engine{log: slog.New(slog.DiscardHandler)}, limit: 1, bound: "config.disk_mb"}
	if err := a.explain(full); !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if err := a.explain(executor.Errorf(executor.Exhausted, "more than 1 byte")); !strings.Contains(err.Error(), "config.disk_mb") {
		t.Error(err)
	}
}

func TestWhatABackendSaysOfFilesIsBounded(t *testing.T) {
	t.Parallel()
	r := executor.Result{FilesChanged: make([]executor.Artifact, executor.MaxFilesChanged+2), FilesOmitted: 3}
	r.FilesChanged[0].Path = "a\xff" + strings.Repeat("b", maxPath)
	boundFiles(&r)
	if len(r.FilesChanged) != executor.MaxFilesChanged || r.FilesOmitted != 5 || !strings.HasPrefix(r.FilesChanged[0].Path, "a\uFFFDb") || len(r.FilesChanged[0].Path) > maxPath+8 {
		t.Errorf("%d files and %d more, the first %.10q", len(r.FilesChanged), r.FilesOmitted, r.FilesChanged[0].Path)
	}
	r = executor.Result{FilesOmitted: -1}
	if boundFiles(&r); r.FilesOmitted != 0 {
		t.Errorf("%d more", r.FilesOmitted)
	}
	var bad executor.Problems
	if validate(executor.Spec{Code: "x", FilesChanged: true}, executor.Input{}, &bad); len(bad) != 1 || bad[0].Field != "files_changed" {
		t.Errorf("without a session: %v", bad)
	}
	bad = nil
	if validate(executor.Spec{Code: "x", Session: "ctx-1", FilesChanged: true}, executor.Input{}, &bad); len(bad) != 0 {
		t.Errorf("in a session: %v", bad)
	}
}

func TestTheNumberOfArtifactsIsBounded(t *testing.T) {
	t.Parallel()
	a := &artifacts{tar: tar.NewWriter(io.Discard), names: map[string]bool{}, limit: 1, list: make([]executor.Artifact, maxArtifacts-1)}
	if err := a.add(&tar.Header{Name: "last"}, strings.NewReader("")); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if err := a.add(&tar.Header{Name: "more"}, strings.NewReader("")); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("one more: %v", err)
	}
}
