package plugin_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func TestADrainWaitsForWhatRunsAndClosesTheBackend(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	p := plugintest.Process(t, "odd", options(t, oddOptions{Closed: closed}))
	process := awaittest.Observe(t, p.PID)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newSink()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Backend.Run(ctx, job("wait"), s)
		ended <- err
	}()
	<-s.first
	drained := make(chan error, 1)
	go func() { drained <- p.Process.Drain(t.Context()) }()
	awaitDrain(t, p)
	if _, err := p.Backend.Run(t.Context(), job("environment"), newSink()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a run during the drain: %v", err)
	}
	if _, err := os.Stat(closed); err == nil {
		t.Error("the backend was closed while it ran something")
	}
	cancel(nil)
	if err := <-ended; err != nil {
		t.Errorf("the run that was drained: %v", err)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if _, err := os.Stat(closed); err != nil {
		t.Errorf("the backend was not closed: %v", err)
	}
	<-p.Process.Done()
	if err := p.Process.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	p.Process.Kill()
	process.Gone(t)
}

// awaitDrain returns when a drain of p has begun.
func awaitDrain(t *testing.T, p *plugintest.Plugin) {
	t.Helper()
	awaittest.Until(t, "the start of the drain", func() bool {
		_, err := p.Backend.Info(t.Context())
		return executor.CodeOf(err) == executor.Unavailable
	})
}

func TestADrainIsBounded(t *testing.T) {
	t.Parallel()
	closed, seen := filepath.Join(t.TempDir(), "closed"), filepath.Join(t.TempDir(), "seen")
	p := plugintest.Process(t, "odd", options(t, oddOptions{Closed: closed, Seen: seen}))
	s := newSink()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Backend.Run(t.Context(), job("wait"), s)
		ended <- err
	}()
	<-s.first
	ctx, cancel := context.WithCancelCause(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- p.Process.Drain(ctx) }()
	awaitDrain(t, p)
	cancel(nil)
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v", err)
	}
	p.Process.Kill() // stops what runs, in order
	<-ended
	if got, err := os.ReadFile(seen); err != nil || string(got) != executor.ErrCallerGone.Error() {
		t.Errorf("the run saw %q, %v", got, err)
	}
	if _, err := os.Stat(closed); err != nil {
		t.Errorf("the backend was not closed: %v", err)
	}
}

func TestTheRunFolderIsPrivateAndGoesAway(t *testing.T) {
	t.Parallel()
	path, args, _ := plugintest.Command("odd")
	for _, how := range []string{"drained", "killed", "died"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			p, err := plugin.Launch(t.Context(), plugin.LaunchOptions{
				Path: path, Args: args, RunDir: dir, Configure: plugin.Configure{Name: "odd", Options: []byte("{}")},
			})
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Fatalf("entries %v, %v", entries, err)
			}
			if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			switch how {
			case "drained":
				if err := p.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			case "died":
				if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				<-p.Done()
			}
			p.Kill()
			if entries, _ := os.ReadDir(dir); len(entries) != 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestAGigabyteGoesThroughInLittleMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() || raceEnabled {
		t.Skip("measures memory: not with -short or the race detector")
	}
	const size = 1 << 30
	p := plugintest.Process(t, "odd", nil)
	j := job("read")
	j.Workspace = &executor.Source{SizeBytes: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, size)), nil
	}}
	s := newSink()
	if _, err := p.Backend.Run(t.Context(), j, s); err != nil {
		t.Fatal(err)
	}
	if s.text.String() != strconv.Itoa(size) {
		t.Errorf("%s bytes arrived", s.text.String())
	}
	peak := peakMemory(t, p.PID)
	t.Logf("peak RSS: plugin %d MiB, host %d MiB", peak>>20, peakMemory(t, os.Getpid())>>20)
	if peak > 64<<20 {
		t.Errorf("the plugin's peak RSS is %d MiB", peak>>20)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw))
	kb, err := strconv.ParseInt(fields[slices.Index(fields, "VmHWM:")+1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
