//go:build linux

package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/python-executor/python-executor/core/runner/network"
)

// TestForksInABoxRunAsUnderPlainPython runs scripts of testdata/fidelity in a box, half of them with a network of their own. It runs as
// an ordinary user, too. Of each file it takes the first script, and with PYEXEC_FIDELITY=all each script.
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
				if os.Getenv("PYEXEC_FIDELITY") != "all" {
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
