package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/host"
)

func TestAPluginThatDoesNotStopInOrderIsCleanedUpBehind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hangs  bool
		grace  time.Duration
		starts int
	}{
		{"in order", false, time.Minute, 1},
		{"hanging", true, time.Second, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			made := filepath.Join(t.TempDir(), "made")
			dir := runDir(t)
			h, err := host.New(host.Options{Entries: entries(map[string]string{"a": fmt.Sprintf(`{"made":%q}`, made)}), Command: plugintest.Command, RunDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			h.SetGrace(c.grace, time.Minute)
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			pid := h.Status()[0].PID
			now, end := context.WithCancelCause(t.Context())
			if c.hangs {
				plugintest.Freeze(t, pid)
			}
			end(nil)
			_ = h.Close(now) // that there was no time to drain
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d is still there: %v", pid, err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if raw, err := os.ReadFile(made); err != nil || strings.Count(string(raw), "made") != c.starts {
				t.Errorf("the backend was made %q, %v, want %d times", raw, err, c.starts)
			}
			if s := h.Status()[0]; s.PID != 0 || s.Generation != 1 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestTheDigestOfAnExternalPluginIsChecked(t *testing.T) {
	t.Parallel()
	path, _, err := plugintest.Command("waiter")
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New(host.Options{
		Entries: map[string]config.Backend{"a": {Type: "waiter", Path: path, SHA256: strings.Repeat("0", 64), Options: []byte("{}")}}, RunDir: runDir(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = h.Start(t.Context())
	e, _ := errors.AsType[*executor.Error](err)
	if executor.CodeOf(err) != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "backends.a.sha256" {
		t.Errorf("a plugin with another digest: %v", err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
