package uvbackend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestHello(t *testing.T) {
	b := openBackend(t, nil)
	out, result := succeeds(t, b, executor.Spec{Code: "print('hello')"})
	if out != "hello\n" {
		t.Errorf("got %q", out)
	}
	if result.PythonVersion == "" || len(result.Requirements) != 0 {
		t.Errorf("version %q, requirements %q", result.PythonVersion, result.Requirements)
	}
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", info)
	if !strings.HasPrefix(info.Details["uv"], "not needed") {
		t.Errorf("uv was looked for: %s", info.Details["uv"])
	}
}

func TestTheDoctorFindsWhatTheBackendUses(t *testing.T) {
	section := func(isolation string) json.RawMessage {
		return fmt.Appendf(nil, `{"cache_dir": %q, "isolation": %q}`, folder(t)+"/cache", isolation)
	}
	levels := map[backend.Level]int{}
	topics := map[string]bool{}
	for _, f := range Doctor(t.Context(), section(IsolationAuto)) {
		levels[f.Level]++
		topics[f.Topic] = true
		t.Logf("%s %s: %s (%s)", f.Level, f.Topic, f.Message, f.Remedy)
		if f.Level == backend.LevelWarn && f.Remedy == "" {
			t.Errorf("no remedy for %s: %s", f.Topic, f.Message)
		}
	}
	for _, topic := range []string{"python", "uv", "index", "files", "user", "network", "way out", "start", "memory", "pids", "cpu", "disk", "cache"} {
		if !topics[topic] {
			t.Errorf("nothing about %s", topic)
		}
	}
	if levels[backend.LevelError] > 0 {
		t.Errorf("%d errors on a machine without problems", levels[backend.LevelError])
	}
	if f := Doctor(t.Context(), section("chroot")); len(f) != 1 || f[0].Level != backend.LevelError || !strings.Contains(f[0].Message, "backends.uv.isolation") {
		t.Errorf("a wrong configuration gives %+v", f)
	}
}

func TestIsolationNoneRunsAsOurselvesAndSaysSo(t *testing.T) {
	b := openBackend(t, map[string]any{"isolation": "none"})
	dir := folder(t)
	out, _ := succeeds(t, b, executor.Spec{HostDirectory: dir, Code: "import os; open('made', 'w').close(); print(os.getuid(), os.getcwd())"})
	if want := strings.Join([]string{strconv.Itoa(os.Geteuid()), dir}, " ") + "\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if _, err := os.Stat(dir + "/made"); err != nil {
		t.Error(err)
	}
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Capabilities.NetworkOff || !info.Capabilities.HostDirectories || !strings.Contains(strings.Join(info.Warnings, "\n"), "isolation is none") {
		t.Errorf("info is %+v", info)
	}
	if _, err := b.Run(t.Context(), job(executor.Spec{Code: "print(1)", Network: executor.NetworkOff}), &journal{}); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("network off: %v", err)
	}
}

func TestAProgramsPathHasItsInterpreterUnderAllNames(t *testing.T) {
	b := openBackend(t, nil)
	out, _ := succeeds(t, b, executor.Spec{Command: []string{"python", "-c", "import os, sys, shutil; print(os.environ['PATH'].split(':')[1:], shutil.which('python3'))"}})
	if !strings.HasPrefix(out, "['/usr/local/bin', '/usr/bin', '/bin'] "+b.aliasDir()) {
		t.Errorf("got %s", out)
	}
}

func TestProgramsOfDifferentSlotsCompeteByTheirShares(t *testing.T) {
	b := openBackend(t, nil)
	needtest.Need(t, b.can.CPU, needtest.Cgroup, "no CPU group can be used")
	place, v2 := filepath.Join(b.groups["cpu"], "slot-*", "cpu.shares"), b.groups["cpu"] == ""
	if v2 {
		place = filepath.Join(b.groups["unified"], "slot-*", "cpu.weight")
	}
	weights := func() string {
		var list []string
		files, _ := filepath.Glob(place)
		for _, f := range files {
			raw, _ := os.ReadFile(f)
			list = append(list, strings.TrimSpace(string(raw)))
		}
		return strings.Join(list, " ")
	}
	for shares, weight := range map[int64]int64{2048: 79, 512: 20, 1024: 39} {
		j := job(executor.Spec{Code: "print(1)", Limits: executor.Limits{CPUShares: shares}})
		j.Limits.CPUShares = shares
		seen := ""
		sink := &journal{on: func(e executor.Event) error {
			if _, ok := e.Body.(executor.Started); ok {
				seen = weights()
			}
			return nil
		}}
		if _, err := b.Run(t.Context(), j, sink); err != nil {
			t.Fatal(err)
		}
		if !v2 {
			weight = shares
		}
		if !strings.Contains(" "+seen+" ", " "+strconv.FormatInt(weight, 10)+" ") {
			t.Errorf("no slot weighs %d: %s", weight, seen)
		}
	}
}
