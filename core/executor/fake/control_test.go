package fake_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

func TestHealthAndDownAreWhatATestSays(t *testing.T) {
	b := fake.New(fake.Options{Name: "mine", Images: []string{"tools"}, Capacity: 3})
	b.SetHealth("no disk")
	info, err := b.Info(t.Context())
	if err != nil || info.Healthy || info.Message != "no disk" || info.Name != "mine" || info.Capacity != 3 || !slices.Equal(info.Images, []string{"tools"}) {
		t.Fatalf("got %+v, %v", info, err)
	}
	b.SetHealth("")
	if info, _ := b.Info(t.Context()); !info.Healthy {
		t.Fatal("it is healthy again")
	}
	b.SetDown(executor.Errorf(executor.Unavailable, "away"))
	_, infoErr := b.Info(t.Context())
	_, runErr := b.Run(t.Context(), job("print 1"), &log{})
	_, attachErr := b.Attach(t.Context(), job("print 1"), executor.Resume{}, &log{})
	for _, err := range []error{infoErr, runErr, attachErr, b.Remove(t.Context(), "exe_1")} {
		if executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	b.SetDown(nil)
	if _, err := b.Run(t.Context(), job("print 1"), &log{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(t.Context(), "exe_1"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Runs(), []string{"exe_1"}) || !slices.Equal(b.Removed(), []string{"exe_1"}) {
		t.Errorf("runs %v, removed %v", b.Runs(), b.Removed())
	}
}

func TestAProgramWaitsAtItsGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{})
		l, done := &log{}, make(chan executor.Result, 1)
		go func() {
			res, err := b.Run(t.Context(), job("print before\nwait gate\nprint after"), l)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		synctest.Wait()
		if got := l.stream(executor.Stdout); got != "before\n" || !slices.Equal(b.Running(), []string{"exe_1"}) {
			t.Fatalf("got %q, running %v", got, b.Running())
		}
		if _, err := b.Run(t.Context(), job("print twice"), &log{}); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("the same id twice at once: %v", err)
		}
		b.Release("gate")
		b.Release("gate")
		if res := <-done; res.Status != executor.StatusSucceeded || l.stream(executor.Stdout) != "before\nafter\n" {
			t.Errorf("got %+v, %q", res, l.stream(executor.Stdout))
		}
	})
}

func TestAProgramCanBreakItsBackend(t *testing.T) {
	b := fake.New(fake.Options{})
	for code, want := range map[string]executor.Code{
		"backend-error internal it broke": executor.Internal,
		"backend-die":                     executor.Unavailable,
	} {
		if _, err := b.Run(t.Context(), job(code), &log{}); executor.CodeOf(err) != want {
			t.Errorf("%s: got %v", code, err)
		}
	}
	func() {
		defer func() {
			if v := recover(); v != "bang" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, err := b.Run(t.Context(), job("backend-panic bang"), &log{})
		t.Errorf("it did not panic: %v", err)
	}()
	if len(b.Running()) > 0 {
		t.Errorf("running %v", b.Running())
	}
}

func TestHooksChangeWhatAnEngineSees(t *testing.T) {
	release := make(chan struct{})
	close(release)
	for name, c := range map[string]struct {
		hook   fake.Hook
		kinds  string
		status executor.Status
	}{
		"before":      {fake.EmitBefore(executor.Finished{}), "finished started output", executor.StatusSucceeded},
		"after":       {fake.EmitAfter(executor.Queued{}), "started output queued", executor.StatusSucceeded},
		"return":      {fake.Return(executor.Result{Status: executor.StatusRunning}), "started output", executor.StatusRunning},
		"hang at end": {fake.HangAtEnd(release), "started output", executor.StatusSucceeded},
		"none left":   {fake.FirstRuns(0, fake.Panic("never")), "started output", executor.StatusSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			res, err := fake.New(fake.Options{Hook: c.hook}).Run(t.Context(), job("print 1"), l)
			var kinds []string
			for _, e := range l.events {
				kinds = append(kinds, string(e.Body.Kind()))
			}
			if got := strings.Join(kinds, " "); err != nil || got != c.kinds || res.Status != c.status {
				t.Errorf("got %q, %s, %v", got, res.Status, err)
			}
		})
	}
}

func TestFactoryReadsItsSectionStrictly(t *testing.T) {
	for section, want := range map[string]executor.Code{
		"":                   "",
		`{}`:                 "",
		`{"capacity":2}`:     "",
		`{"capcity":2}`:      executor.Invalid,
		`{"capacity":"two"}`: executor.Invalid,
		`[]`:                 executor.Invalid,
	} {
		b, err := fake.Factory(t.Context(), plugin.Configure{Name: "mine", Options: json.RawMessage(section)})
		if executor.CodeOf(err) != want || (b == nil) != (want != "") {
			t.Errorf("%s: got %v, %v", section, b, err)
		}
		if want != "" && !strings.Contains(err.Error(), "backends.mine") {
			t.Errorf("%s: the error does not name the section: %v", section, err)
		}
	}
}

// FuzzPrograms checks that every program ends and leaves nothing behind.
func FuzzPrograms(f *testing.F) {
	f.Add("print hello\nexit 3")
	f.Add("hex stdout zz\nflood stdout 1000\nwrite-file \"a\\x00\" b")
	f.Add("fill-file x 99999999999999999\nalloc -1\nsleep 1000000h\nfork x")
	f.Fuzz(func(t *testing.T, code string) {
		if strings.Contains(code, "backend-") || strings.Contains(code, "connect") || strings.Contains(code, "host-file") {
			t.Skip("these reach outside of the fake")
		}
		if strings.Contains(code, "B") {
			t.Skip("a large size takes its time")
		}
		synctest.Test(t, func(t *testing.T) {
			b := fake.New(fake.Options{})
			if _, err := b.Run(t.Context(), job(code+"\nexit 0"), &log{}); err != nil {
				t.Fatal(err)
			}
			if len(b.Running()) > 0 {
				t.Fatal("something runs")
			}
		})
	})
}
