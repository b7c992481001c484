package uvbackend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// TestConformance holds this backend to the law, in all three lanes, with a package index of the test's own.
func TestConformance(t *testing.T) {
	needUV(t)
	index := newWheelhouse(t)
	index.probe()
	cache := filepath.Join(folder(t), "cache")
	options, err := json.Marshal(map[string]any{"cache_dir": cache, "index_url": index.url(), "warm_sessions": -1}) // one would count as residue
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Harness{
		New: func(t *testing.T) executor.Backend {
			b, err := Factory(t.Context(), plugin.Configure{Name: "uv", Instance: "law", Options: options})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Process: func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "uv", options) },
		Options: backendtest.Options{
			Requirement: backendtest.Requirement{Text: "pyexec-probe<2", Import: "pyexec_probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3"},
			Residue:     func() []string { return residue(filepath.Join(cache, "work")) },
		},
	})
}

// residue lists what programs left for longer than a runner needs to clear up behind the answer.
func residue(work string) []string {
	patience, again := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		found := leftovers(work)
		if len(found) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-patience:
			return found
		}
	}
}

// leftovers are work folders, and processes whose home is one. Slots without a program are none, and neither is the one
// empty folder that an idle slot has ready for its next run.
func leftovers(work string) []string {
	var found []string
	slots, _ := filepath.Glob(filepath.Join(work, "*", "*"))
	for _, slot := range slots {
		folders, _ := os.ReadDir(slot)
		for i, f := range folders {
			path := filepath.Join(slot, f.Name())
			files, _ := filepath.Glob(filepath.Join(path, "*"))
			hidden, _ := filepath.Glob(filepath.Join(path, ".tmp", "*"))
			if i > 0 || len(files)+len(hidden) > 0 {
				found = append(found, "folder "+path)
			}
		}
	}
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range environments {
		raw, err := os.ReadFile(e)
		if err == nil && bytes.Contains(raw, []byte("HOME="+work)) {
			pid := filepath.Base(filepath.Dir(e))
			if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
				found = append(found, fmt.Sprintf("process %s in %s", pid, work))
			}
		}
	}
	return found
}

// TestTheLawHoldsWithoutRoot runs the direct lane once more as nobody, where user namespaces or nothing take the place of
// uids, control groups and mounts.
func TestTheLawHoldsWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: not root, so TestConformance has shown it already")
	}
	needUV(t)
	home := folder(t)
	uv, err := exec.LookPath("uv")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(uv)
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(home, "bin", "uv"), string(raw))
	const nobody = 65534
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^TestConformance$/^direct$", "-test.v")
	cmd.Env = []string{"PATH=" + filepath.Join(home, "bin") + ":" + defaultPath, "HOME=" + home, "TMPDIR=" + home}
	cmd.Dir = "/"
	cmd.SysProcAttr = childAttr(nobody)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestConformance/direct")) {
		t.Errorf("%v\n%s", err, out)
	}
}
