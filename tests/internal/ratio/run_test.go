package ratio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/tests/internal/ratio"
)

// repository makes one, and returns its folder and a function that runs git in it.
func repository(t *testing.T) (string, func(args ...string)) {
	t.Helper()
	_, err := exec.LookPath("git")
	needtest.Need(t, err == nil, "git", "")
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	run("init", "-q")
	return dir, run
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyCommittedRunsCountAndTheNewestComesFirst(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	write(t, dir, "bench/2026-01-01.json", `{"date":"2026-01-01T00:00:00Z","samples_ms":{"a":[1,2]},"figures":{"b":3}}`)
	write(t, dir, "bench/0-later.json", `{"date":"2026-02-01T00:00:00Z","rates_per_second":{"a":[7]},"repetitions":3}`)
	write(t, dir, "bench/readme.txt", "no run")
	write(t, dir, "elsewhere.json", "no run")
	git("add", "-A")
	git("commit", "-qm", "runs")
	write(t, dir, "bench/2026-03-01.json", `{"date":"2026-03-01T00:00:00Z"}`)
	write(t, dir, "bench/0-later.json", `{"date":"2026-04-01T00:00:00Z"}`)
	git("add", "-A") // it is not committed
	files, err := ratio.Committed(t.Context(), dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	if f := files[0]; f.Name != "bench/0-later.json" || f.Date.Month() != 2 || f.Rates["a"][0] != 7 || f.Repetitions != 3 {
		t.Errorf("%+v", f)
	}
	if f := files[1]; f.Name != "bench/2026-01-01.json" || f.Samples["a"][1] != 2 || f.Figures["b"] != 3 {
		t.Errorf("%+v", f)
	}
}

func TestAFileThatIsNoRunIsNamed(t *testing.T) {
	t.Parallel()
	dir, git := repository(t)
	if _, err := ratio.Committed(t.Context(), dir); err == nil { // nothing is committed
		t.Error("a repository without a commit has runs")
	}
	write(t, dir, "bench/broken.json", "{")
	git("add", "-A")
	git("commit", "-qm", "broken")
	if _, err := ratio.Committed(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "bench/broken.json") {
		t.Errorf("the error is %v", err)
	}
}

// The runs of this repository stay readable.
func TestTheCommittedRunsAreRead(t *testing.T) {
	t.Parallel()
	root := "../../.."
	_, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Output()
	needtest.Need(t, err == nil, "a git work tree", "")
	files, err := ratio.Committed(t.Context(), root)
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	row := ratio.Row{Of: ratio.Term{Series: "http sync"}, To: ratio.Term{Series: "bare python"}}
	for _, f := range files {
		if m, ok := row.Measure(&f.Run); ok && m.Value > 0 && m.Noise > 0 {
			return
		}
	}
	t.Error("no committed run has the first row of the benchmark")
}
