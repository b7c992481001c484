//go:build linux

package runner

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/network"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// TestForksInABoxRunAsUnderPlainPython runs scripts of testdata/fidelity in a box, half of them with a network of their own. It runs as
// an ordinary user, too. Of each file it takes the first script, and in a long part each script.
func TestForksInABoxRunAsUnderPlainPython(t *testing.T) {
	files, err := filepath.Glob("testdata/fidelity/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	asUnderRunner(t)
	python := askPython("/usr/bin/python3")
	for i, name := range []string{"without a network", "with a network"} {
		t.Run(name, func(t *testing.T) {
			cfg := boxConfig(t)
			cfg.PrivateNetwork = network.Probe() == nil || !isRoot()
			ways := []fidelityWay{plainWay(Config{WorkRoot: cfg.WorkRoot, UID: cfg.UID, GID: cfg.GID}), runnerWay(t, cfg, i == 1)}
			for n, file := range files {
				scripts := readFidelity(t, file)
				if !needtest.IsLong() {
					scripts = scripts[:1]
					if n%2 != i {
						continue
					}
				}
				compareWays(t, ways, python.path, scripts)
			}
		})
	}
}

// aheadWay runs each script in an interpreter that has started for it alone.
func aheadWay(t *testing.T, cfg Config) fidelityWay {
	work := filepath.Join(cfg.WorkRoot, "a8ead000")
	begun := 0
	t.Cleanup(func() { t.Logf("%d scripts have found their interpreter started", begun) })
	return fidelityWay{"ahead", func(t *testing.T, python string, s *fidelityScript) outcome {
		t.Helper()
		start := s.start(python)
		folder := &sandbox.Folder{Path: work, Temp: work + "t"}
		env, err := sandbox.Environment(start, folder)
		must(t, err)
		usual, err := sandbox.Environment(Start{Path: start.Path}, folder)
		must(t, err)
		removeFolders(t, work)
		makeFolders(t, cfg, work)
		var started zygote.Process
		slot, err := zygote.Start(awaittest.Context(t), zygote.Config{
			Interpreter: python, Entrypoint: argumentOf(s.entry), Dir: work, Env: usual,
			Launch: func(c zygote.Command) (zygote.Process, error) {
				var err error
				started, err = launchAs(cfg)(c)
				return started, err
			},
		})
		must(t, err)
		end := func() syscall.WaitStatus {
			state, err := started.(process).Process.Wait()
			must(t, err)
			return state.Sys().(syscall.WaitStatus)
		}
		got, _ := runSlot(t, cfg, work, s, slot, zygote.Request{Argv: slices.Concat(start.Interpreter, []string{argumentOf(s.entry)}, s.args), Env: env}, end)
		if got.refused {
			end()
		} else {
			begun++
		}
		return got
	}}
}
