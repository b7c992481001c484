package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// TestAContainerWhoseMemoryIsFullOfFilesIsOutOfMemory: killing a process does not free files in memory. So the kernel kills the
// program, and then it may kill the runner.
func TestAContainerWhoseMemoryIsFullOfFilesIsOutOfMemory(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	for range 2 {
		j := job(executor.Spec{Code: `
import os
os.write(1, b"up\n")
for folder in ["/dev/shm", "/tmp"]:
    try:
        for n in range(1000):
            with open(folder + "/" + str(n), "wb", 0) as f:
                for _ in range(8): f.write(bytes(1 << 16))
    except OSError: pass
`})
		j.Limits.MemoryBytes, j.Limits.DiskBytes = 24<<20, 1<<20
		var out journal
		r, err := b.Run(t.Context(), j, &out)
		if failed := b.Remove(t.Context(), j.ID); failed != nil {
			t.Error(failed)
		}
		if limit := r.HitLimit(); err != nil || r.Status != executor.StatusOutOfMemory || limit == nil || limit.Field != memoryField {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestARunnerThatIsEndedForItsContainersMemoryIsOutOfMemory: the kernel ends the first process of a container that the daemon
// then removes, so the container may be gone when the backend queries it.
func TestARunnerThatIsEndedForItsContainersMemoryIsOutOfMemory(t *testing.T) {
	t.Parallel()
	b := commonBackend(t)
	image, err := b.images.ensure(t.Context(), b.config.DefaultImage, nothing)
	if err != nil {
		t.Fatal(err)
	}
	lost := executor.Errorf(executor.Unavailable, "the runner went away")
	// died runs code as the first process of a container, and returns what diedOf says after the removal, and what the daemon says. On a
	// busy machine it forgets ends among the events of other containers, and does not hear of each kill.
	died := func(code string) (r executor.Result, full bool, err error) {
		spec := sandboxSpec(b.place, class{Image: image.ID, DiskBytes: 1 << 20}, capacity{MemoryBytes: 32 << 20, PIDs: 32}, nil, newName(kindSandbox), time.Now())
		spec.Volume, spec.Hosts, spec.Command = "", "", []string{"python3", "-c", code}
		id, err := b.daemon.create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := b.daemon.attach(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := b.daemon.start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		close(gone)
		if _, err := conn.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		awaittest.Until(t, "the container's removal by the daemon", func() bool {
			_, err := b.daemon.inspect(context.Background(), id)
			return executor.CodeOf(err) == executor.NotFound
		})
		r, err = b.diedOf(t.Context(), &sandbox{id: id, gone: gone}, true, 32<<20, executor.Result{}, lost)
		end, _ := b.daemon.end(t.Context(), id)
		return r, end.OutOfMemory, err
	}
	for code, want := range map[string]bool{
		"import sys; sys.stdin.readline(); x = b'x' * (1 << 30)": true,
		"import sys; sys.stdin.readline(); sys.exit(137)":        false,
	} {
		awaittest.Until(t, "an end as the daemon should tell it", func() bool {
			r, full, err := died(code)
			got := err == nil && r.Status == executor.StatusOutOfMemory && r.HitLimit() != nil
			if full == want && (got != want || !want && !errors.Is(err, lost)) {
				t.Errorf("%s: %+v, %v", code, r, err)
			}
			return full == want
		})
	}
}

// TestASessionWhoseContainerRanOutOfMemorySaysSo during any call, and afterwards.
func TestASessionWhoseContainerRanOutOfMemorySaysSo(t *testing.T) {
	t.Parallel()
	id, dir, options := instance(t), t.TempDir(), section(t, nil)
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
		b.factory.full = func(ctx context.Context, container string) bool { // stands in for the kernel, which would take long
			_, err := b.daemon.end(ctx, container)
			return err == nil || executor.CodeOf(err) == executor.NotFound // the container may be removed before its end is recorded
		}
		return b
	}
	b := start()
	for name, using := range map[string]func(s executor.Session) (die func(), seen func()){
		"while a cell runs": func(s executor.Session) (func(), func()) {
			r := begin(t, b, executor.Spec{Session: s.ID, Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
			return nil, func() {
				<-r.ended
				if r.err != nil || r.result.Status != executor.StatusOutOfMemory || r.result.SessionState != executor.SessionStateLost || r.result.HitLimit() == nil {
					t.Errorf("%+v, %v", r.result, r.err)
				}
			}
		},
		"while a file is written": func(s executor.Session) (func(), func()) {
			in, out := io.Pipe()
			written := make(chan error, 1)
			go func() {
				_, err := b.WriteFile(context.WithoutCancel(t.Context()), s.ID, executor.File{Path: "a", SizeBytes: 2}, in)
				_ = in.Close()
				written <- err
			}()
			if _, err := out.Write([]byte("a")); err != nil {
				t.Fatal(err)
			}
			return nil, func() {
				awaittest.Until(t, "the end of the session", func() bool { return b.full.has(s.ID) })
				if err := out.Close(); err != nil {
					t.Error(err)
				}
				if err := <-written; executor.CodeOf(err) != executor.Exhausted || !strings.Contains(err.Error(), "out of memory") {
					t.Errorf("%v", err)
				}
			}
		},
		"while no call uses it": func(s executor.Session) (func(), func()) {
			return nil, func() {
				awaittest.Until(t, "the end of the session", func() bool { return b.full.has(s.ID) && b.sessions.Len() == 0 })
			}
		},
		"while its plugin is away": func(executor.Session) (func(), func()) {
			return b.abandon, func() { b = start() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := job(executor.Spec{}).Limits
			s := executor.Session{ID: "ctx-" + random(), Language: executor.LanguagePython, Limits: l}
			opened, err := b.OpenSession(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			var h sessionHandle
			if err := json.Unmarshal(opened.Handle, &h); err != nil {
				t.Fatal(err)
			}
			die, seen := using(s)
			if die != nil {
				die()
			}
			if err := b.daemon.remove(t.Context(), h.Container); err != nil {
				t.Fatal(err)
			}
			seen()
			if _, err := b.ListFiles(t.Context(), s.ID, "", false); executor.CodeOf(err) != executor.NotFound {
				t.Errorf("its files: %v", err)
			}
			if _, err := b.AdoptSession(t.Context(), s, opened.Handle); executor.CodeOf(err) != executor.Exhausted || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("adopted: %v", err)
			}
			if n := b.sessions.Len(); n != 0 {
				t.Errorf("%d sessions are held", n)
			}
		})
	}
}
