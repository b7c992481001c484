package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// The settings of a backend under test, beside those of Config: the agent and the runner. The test program itself cannot serve as a
// runner in containers.
type settings struct {
	Config

	Address string `json:"test_address"`
	Runner  string `json:"test_runner"`
}

// TestMain runs this binary as a plugin if it is started as one.
func TestMain(m *testing.M) {
	plugintest.Main(map[string]plugin.Factory{"nomad": func(_ context.Context, c plugin.Configure) (executor.Backend, error) { return open(c) }})
	nomadtest.Main(leaving{m})
}

// leaving is a testing.M that removes the runner after the tests.
type leaving struct{ m *testing.M }

func (l leaving) Run() int {
	_ = os.Setenv("UV_HTTP_TIMEOUT", "600") // pip gives an index 15 s, which a busy machine may need
	code := l.m.Run()
	if err := os.RemoveAll(runnerDir); err != nil { // the path is empty if no runner was built
		fmt.Fprintln(os.Stderr, "remove the runner:", err)
		code = max(code, 1)
	}
	return code
}

// runnerDir is the folder of the runner under test.
var runnerDir string

// testRunner builds the runner once, as make build does.
var testRunner = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "nomadjobs-runner-")
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

// open makes a backend from settings.
func open(c plugin.Configure) (*Backend, error) {
	s := settings{Config: Default()}
	if err := json.Unmarshal(c.Options, &s); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(s.Runner)
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(&api.Config{Address: s.Address, TLSConfig: &api.TLSConfig{}})
	if err != nil {
		return nil, err
	}
	return newBackend(Options{Client: client, Config: s.Config, Configure: c}, program{content: content})
}

// limits are those that an engine sets by default, with less memory and less of the CPU, so that many jobs fit on a node.
var limits = executor.Limits{
	Timeout: 5 * time.Minute, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, CPUShares: 256, PIDs: 64, OutputBytes: 64 << 20, KillGrace: time.Second,
}
