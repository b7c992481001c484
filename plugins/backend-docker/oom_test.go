package dockerbackend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// TestAContainerWhoseMemoryIsFullOfFilesIsOutOfMemory: files in memory are nobody's to kill, so the kernel ends the program
// and then, needing more, may end the runner.
func TestAContainerWhoseMemoryIsFullOfFilesIsOutOfMemory(t *testing.T) {
	b := backend(t, map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}})
	for range 3 {
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
		if err != nil || r.Status != executor.StatusOutOfMemory {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestARunnerThatIsEndedForItsContainersMemoryIsOutOfMemory: the first process of a container that is removed by itself.
func TestARunnerThatIsEndedForItsContainersMemoryIsOutOfMemory(t *testing.T) {
	b := backend(t, map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}})
	image, err := b.images.ensure(t.Context(), b.config.DefaultImage, nothing)
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]bool{
		"import sys; sys.stdin.readline(); x = b'x' * (1 << 30)": true,
		"import sys; sys.stdin.readline(); sys.exit(137)":        false,
	} {
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
		if err := b.daemon.start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		close(gone)
		if _, err := conn.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		lost := executor.Errorf(executor.Unavailable, "the runner went away")
		r, err := b.diedOf(t.Context(), &sandbox{id: id, gone: gone}, true, executor.Result{}, lost)
		if got := err == nil && r.Status == executor.StatusOutOfMemory; got != want || !want && !errors.Is(err, lost) {
			t.Errorf("%s: %+v, %v", code, r, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "the container's removal by the daemon", func() bool {
			_, err := b.daemon.inspect(context.Background(), id)
			return executor.CodeOf(err) == executor.NotFound
		})
	}
}
