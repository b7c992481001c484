package tests

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/tests/internal/chaos"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// command runs a program of this machine with the binary under test on its PATH. The program's output is the test's log.
func command(t *testing.T, dir string, args ...string) (stdout string, err error) {
	t.Helper()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ctx := awaittest.Context(t)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = environ("PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "REPO="+repo, "GOFLAGS=-trimpath")
	out, err := cmd.Output()
	return string(out), err
}

// pythonPlugin builds the example in Python, once.
var pythonPlugin = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../tools/python-backend.sh").Output()
	return strings.TrimSpace(string(out)), err
})

// goPlugin builds the example in Go, once.
var goPlugin = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(cacheDir), "local-backend")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	cmd.Dir = "../examples/backends/go"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// examplePlugin returns the path of the plugin of an example.
func examplePlugin(t *testing.T, language string) string {
	t.Helper()
	build := goPlugin
	if language == "python" {
		_, err := pythonPlugin()
		skipWithout(t, "index", err == nil)
		build = pythonPlugin
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shellBlock matches the commands of docs/plugins.md for a language.
var shellBlock = regexp.MustCompile("(?s)```sh ([a-z]+)\n(.*?)```")

// gateRules are the rules of plugin check by the gate: those of plugins, and of each kind of message one. The rest is the runner's, and the
// uv backend holds that to the law.
const gateRules = "PL-01,PL-02,PL-03,PL-04,PL-05,PL-06,PL-07,BE-01,BE-10,BE-15,BE-16,BE-22,BE-24,BE-30,BE-42,BE-70,BE-71,BE-74,BE-83,BE-93"

// TestThePageAboutPluginsLeadsToABackendThatPasses runs the commands of docs/plugins.md, which end with plugin check.
func TestThePageAboutPluginsLeadsToABackendThatPasses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	var languages []string
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		language, commands := block[1], block[2]
		languages = append(languages, language)
		t.Run(language, func(t *testing.T) {
			if language == "python" {
				needtest.Long(t, "the backend in Go")
			}
			t.Parallel()
			examplePlugin(t, language) // skips without an index
			if check := "plugin check "; !needtest.IsLong() {
				if strings.Count(commands, check) != 1 {
					t.Errorf("the commands do not end with %s", check)
				}
				commands = strings.Replace(commands, check, check+"--rule "+gateRules+" ", 1)
			}
			out, err := command(t, t.TempDir(), "bash", "-euo", "pipefail", "-c", commands)
			if err != nil {
				t.Errorf("%v", err)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			passed := 0
			for _, line := range lines {
				if strings.HasPrefix(line, "ok ") {
					passed++
				}
				if strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "      ") {
					t.Error(line)
				}
			}
			if passed <= strings.Count(gateRules, ",") {
				t.Errorf("%d rules have passed", passed)
			}
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "sha256 ") {
				t.Errorf("the last line is %q", last)
			}
		})
	}
	if !slices.Equal(languages, []string{"go", "python"}) {
		t.Errorf("the page has commands for %q", languages)
	}
}

// external starts a server whose only backend is a plugin.
func external(t *testing.T, plugin string) *serve.Server {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(cacheDir), "external-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := chaos.NewServer(binary, dir, plugin)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// TestABackendIsSwappedInByPathAndDigest uses the examples as a server's backend: what they promise works, what they cannot
// enforce is refused by name, and after kill -9 under load each execution is right or lost.
func TestABackendIsSwappedInByPathAndDigest(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"go", "python"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			s := external(t, examplePlugin(t, language))
			var list struct {
				Backends []struct {
					Name         string         `json:"name"`
					Type         string         `json:"type"`
					Warnings     []string       `json:"warnings"`
					Capabilities map[string]any `json:"capabilities"`
				} `json:"backends"`
			}
			if err := s.JSON(http.MethodGet, "/api/v1/backends", "", &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Backends) == 0 || list.Backends[0].Name != "local" || list.Backends[0].Type != "local-"+language ||
				list.Backends[0].Capabilities["isolation"] != "none" || len(list.Backends[0].Warnings) == 0 {
				t.Errorf("the backends are %+v", list)
			}
			var x struct {
				Status string `json:"status"`
				Stdout string `json:"stdout"`
			}
			if err := s.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"import sys\nprint(sys.argv[1:])","args":["1"],"stdin":"x"}`, &x); err != nil || x.Stdout != "['1']\n" {
				t.Errorf("%+v, %v", x, err)
			}
			for _, field := range []string{"memory_mb", "disk_mb", "pids", "cpu_shares"} {
				err := s.JSON(http.MethodPost, "/api/v1/exec/sync", fmt.Sprintf(`{"code":"print(1)","config":{%q:64}}`, field), &x)
				if err == nil || !strings.Contains(err.Error(), "config."+field) {
					t.Errorf("%s: got %v, want a refusal that names it", field, err)
				}
			}
			report, err := chaos.Run(s, chaos.Options{Workers: 4, Kills: 3, Between: 8})
			if err != nil {
				t.Error(err)
			}
			t.Log(report)
		})
	}
}

func TestAPluginWithAnotherDigestIsNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	raw, err := os.ReadFile(examplePlugin(t, "go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plugin, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := chaos.NewServer(binary, dir, plugin)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plugin, append(raw, "one more line"...), 0o700); err != nil {
		t.Fatal(err)
	}
	o := cli(t, []string{"PYEXEC_DATA_DIR=" + filepath.Join(dir, "data"), "PYEXEC_HTTP_BIND=127.0.0.1:0"}, nil, "serve", "--config", s.Config)
	if o.code == 0 || !strings.Contains(o.stderr, "backends.local.sha256") {
		t.Errorf("status %d, %q", o.code, o.stderr)
	}
}

func TestTheProtocolIsPublished(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	o := cli(t, nil, nil, "plugin", "proto", dir)
	for _, name := range []string{"plugin", "backend", "source", "types"} {
		published, err := os.ReadFile(filepath.Join(dir, "pyexec", "v1", name+".proto"))
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile("../core/executor/wire/proto/pyexec/v1/" + name + ".proto")
		if err != nil {
			t.Fatal(err)
		}
		if string(published) != string(source) || !strings.Contains(o.stdout, filepath.Join(dir, "pyexec", "v1", name+".proto")+"\n") {
			t.Errorf("%s.proto differs, or is not named: %q", name, o.stdout)
		}
	}
}
