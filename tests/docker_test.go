package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// dockerEnv makes the program under test use the docker backend, and nothing else of it is configured.
func dockerEnv(t *testing.T, more ...string) []string {
	t.Helper()
	image := dockertest.Python(t)
	return append([]string{
		"PYEXEC_BACKEND=docker", "PYEXEC_BACKENDS_DOCKER_HOST=" + dockertest.Host(t), "PYEXEC_BACKENDS_DOCKER_DEFAULT_IMAGE=" + image,
	}, more...)
}

// startDocker starts a server on the docker backend. After the test nothing of it may be in the daemon.
func startDocker(t *testing.T, more ...string) *server {
	t.Helper()
	var s *server
	label := ""
	t.Cleanup(func() { // after the server was stopped
		if label == "" {
			return
		}
		left := func() []string { return dockertest.Objects(t, label) }
		awaittest.UntilNil(t, "the removal of all of it from the daemon", func() error {
			if left := left(); len(left) > 0 {
				return fmt.Errorf("left: %q", left)
			}
			return nil
		})
	})
	s = startServer(t, dockerEnv(t, more...))
	label = s.label()
	return s
}

// label is the one of everything that the server has in the daemon.
func (s *server) label() string {
	s.t.Helper()
	instance, err := os.ReadFile(filepath.Join(s.dir, "data", "instance"))
	if err != nil {
		s.t.Fatal(err)
	}
	return "python-executor.instance=" + strings.TrimSpace(string(instance))
}

// sandboxes are the containers that programs run in, or wait for some.
func (s *server) sandboxes() []string {
	s.t.Helper()
	return dockertest.Containers(s.t, s.label())
}

// TestTheExamplesBehaveTheSameOnBothBackends runs what the README shows, embedded and on a server.
func TestTheExamplesBehaveTheSameOnBothBackends(t *testing.T) {
	dir := tree(t,
		file{"script.py", "import os, sys; print(os.environ.get('KEY'), sys.argv[1:], os.getcwd() == os.environ['HOME']); os.makedirs('a/b'); open('a/b/x.png', 'w').write('png')"},
		file{"main.py", "import data, sys; print(data.v); sys.exit(3)"}, file{"data.py", "v = open('data/config.yaml').read()"}, file{"data/config.yaml", "k: v"},
		file{"requirements.txt", "# nothing\n"}, file{"rows.py", "import sys; print(len(sys.stdin.readlines()))"}, file{"rows.csv", "a\nb\n"},
		file{"train.py", "print('trained')"}, file{"long.py", "import time\nprint('up', flush=True)\ntime.sleep(600)"})
	tarPath := filepath.Join(t.TempDir(), "project.tar")
	if err := os.WriteFile(tarPath, tarOf(t, file{"main.py", "import sys\nfor i in range(3): print(i)\nprint('err', file=sys.stderr)"}), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	version := func(env []string) string {
		o := cli(t, env, strings.NewReader("import sys; print('%d.%d' % sys.version_info[:2])"), "run")
		return strings.TrimSpace(o.stdout)
	}
	examples := []struct {
		name, stdin string
		args        []string
		want        outcome
	}{
		{"a file", "", []string{"run", at("train.py")}, outcome{stdout: "trained\n"}},
		{"a folder", "", []string{"run", dir, "--entrypoint", "train.py", "--timeout", "7200", "--memory", "4096"}, outcome{stdout: "trained\n"}},
		{"files", "", []string{"run", "--file", at("main.py"), "--file", at("data.py"), "--file", at("requirements.txt"), "--file", at("data/config.yaml")}, outcome{code: 1}},
		{"the folder with all", "", []string{"run", dir}, outcome{stdout: "k: v\n", code: 3}},
		{"a tar", "", []string{"run", tarPath}, outcome{stdout: "0\n1\n2\n", stderr: "err\n"}},
		{"a pipe", "print(1 + 1)", []string{"run"}, outcome{stdout: "2\n"}},
		{"version, variable, artifacts, arguments", "", []string{"run", at("script.py"), "--python", "VERSION", "--env", "KEY=value", "--output", "OUT", "--artifact", "**/*.png", "--", "ARG1", "ARG2"}, outcome{stdout: "value ['ARG1', 'ARG2'] True\n"}},
		{"requirements, stdin, network", "", []string{"run", at("rows.py"), "--requirements", at("requirements.txt"), "--stdin", at("rows.csv"), "--network"}, outcome{stdout: "2\n"}},
		{"a command", "", []string{"run", dir, "--command", "--", "python3", "-c", "import os; print(sorted(os.listdir('data')))"}, outcome{stdout: "['config.yaml']\n"}},
		{"a command that is not there", "", []string{"run", dir, "--command", "--", "frobnicate"}, outcome{code: 127}},
		{"a time limit", "", []string{"run", at("long.py"), "--timeout", "1"}, outcome{stdout: "up\n", code: 124}},
		{"a memory limit", "x = bytearray(1 << 30)", []string{"run", "--memory", "64", "--disk", "64"}, outcome{code: 137}},
		{"a signal", "import os; os.kill(os.getpid(), 15)", []string{"run"}, outcome{code: 143}},
	}
	for backend, env := range map[string][]string{"uv": nil, "docker": dockerEnv(t)} {
		for mode, env := range map[string][]string{"embedded": env, "server": nil} {
			t.Run(backend+" "+mode, func(t *testing.T) {
				if (backend == "docker") != (mode == "server") {
					needtest.Long(t, "uv embedded, and docker on a server")
				}
				if mode == "server" {
					var s *server
					if backend == "docker" {
						s = startDocker(t)
					} else {
						s = startServer(t, nil)
					}
					env = []string{"PYEXEC_SERVER=" + s.url}
				}
				minor := version(env)
				for _, e := range examples {
					out := t.TempDir()
					args := slices.Clone(e.args)
					for i := range args {
						args[i] = strings.NewReplacer("VERSION", minor, "OUT", out).Replace(args[i])
					}
					o := cli(t, env, strings.NewReader(e.stdin), args...)
					if e.want.code == 124 && o.stdout == "" { // on a busy machine an interpreter may need more than a second to start
						args[len(args)-1] = "30"
						o = cli(t, env, strings.NewReader(e.stdin), args...)
					}
					if o.code != e.want.code || o.stdout != e.want.stdout || !strings.Contains(o.stderr, e.want.stderr) {
						t.Errorf("%s: %+v, want %+v", e.name, o, e.want)
					}
					if _, err := os.Stat(filepath.Join(out, "a/b/x.png")); slices.Contains(args, "--artifact") && err != nil {
						t.Errorf("%s: %v", e.name, err)
					}
				}
			})
		}
	}
}

func TestTheServersExamplesOnDocker(t *testing.T) {
	needtest.Long(t, "TestHTTPRunsPythonThroughAPluginProcess, and TestTheExamplesBehaveTheSameOnBothBackends on docker")
	s := startDocker(t)
	env := []string{"PYEXEC_SERVER=" + s.url}
	t.Run("sync", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"print(1)"}`).json(t)
		checkKeys(t, r)
		if r["stdout"] != "1\n" || r["status"] != "succeeded" || r["backend"] != "docker" || !strings.HasPrefix(fmt.Sprint(r["image_digest"]), "sha256:") {
			t.Error(r)
		}
	})
	t.Run("a tar and limits", func(t *testing.T) {
		r := s.multipart("/api/v1/exec/sync",
			part{name: "metadata", contentType: "application/json", body: []byte(`{"config":{"timeout_seconds":30,"memory_mb":256}}`)},
			part{name: "tar", filename: "project.tar", body: tarOf(t, file{"main.py", "print('hi')"})}).json(t)
		if r["stdout"] != "hi\n" {
			t.Error(r)
		}
	})
	t.Run("async, follow, logs, ls, kill", func(t *testing.T) {
		tarPath := filepath.Join(t.TempDir(), "project.tar")
		if err := os.WriteFile(tarPath, tarOf(t, file{"main.py", "print('from', 'tar')"}), 0o600); err != nil {
			t.Fatal(err)
		}
		id := strings.TrimSpace(cli(t, env, nil, "submit", tarPath, "--async", "--memory", "2048").stdout)
		if o := cli(t, env, nil, "follow", "--tail", id); o.code != 0 || o.stdout != "from tar\n" {
			t.Errorf("follow: %+v", o)
		}
		if o := cli(t, env, nil, "logs", "-f", id); o.code != 0 || o.stdout != "from tar\n" {
			t.Errorf("logs: %+v", o)
		}
		if o := cli(t, env, nil, "ls"); !strings.Contains(o.stdout, id) {
			t.Errorf("ls: %+v", o)
		}
		long := s.async(`{"code":"print('up', flush=True)\nimport time; time.sleep(600)"}`)
		s.up(long)
		if o := cli(t, env, nil, "kill", long); o.code != 0 {
			t.Errorf("kill: %+v", o)
		}
		s.wait(long, "killed")
	})
	t.Run("events and logs over HTTP", func(t *testing.T) {
		id := s.async(`{"code":"for i in range(3): print(i)"}`)
		if a := s.get("/api/v1/executions/" + id + "/events"); !bytes.Contains(a.body, []byte("event: finished")) {
			t.Errorf("%s", a.body)
		}
		if a := s.get("/api/v1/executions/" + id + "/logs?stream=both&follow=true"); string(a.body) != "0\n1\n2\n" {
			t.Errorf("%q", a.body)
		}
	})
	t.Run("delete", func(t *testing.T) {
		id := s.async(`{"code":"print('up', flush=True)\nimport time; time.sleep(600)"}`)
		s.up(id)
		a := s.do(s.request("DELETE", "/api/v1/executions/"+id, nil))
		if a.json(t)["status"] != "killed" {
			t.Errorf("%s", a.body)
		}
	})
	t.Run("images are refused by name", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"1","docker_image":"evil.example.org/x"}`)
		if !bytes.Contains(r.body, []byte("docker_image")) || !bytes.Contains(r.body, []byte("not among the images")) {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

// TestTheSpecificationsSampleRuns sends the PRD's metadata; the image is one at hand.
func TestTheSpecificationsSampleRuns(t *testing.T) {
	needtest.Long(t, "TestTheSpecificationOnNomad, which installs less, and the tests of preparations of the docker backend")
	s := startDocker(t, "PYEXEC_BACKENDS_DOCKER_IMAGES=pyexec-test")
	metadata, err := json.Marshal(map[string]any{
		"entrypoint": "main.py", "docker_image": dockertest.Python(t), "requirements_txt": "numpy\npandas==2.2", "pre_commands": []string{"apt update -y", "apt install -y gcc"},
		"stdin":  "optional input string",
		"config": map[string]any{"timeout_seconds": 300, "network_disabled": true, "memory_mb": 1024, "disk_mb": 2048, "cpu_shares": 1024},
	})
	if err != nil {
		t.Fatal(err)
	}
	program := `import subprocess, sys, socket
import numpy, pandas
print(sys.stdin.read(), pandas.__version__, numpy.arange(3).sum())
open("x.c", "w").write('#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }')
subprocess.run(["gcc", "-o", "x", "x.c"], check=True)
sys.stdout.flush()
subprocess.run(["./x"], check=True)
try:
    socket.create_connection(("deb.debian.org", 80), 2)
except OSError:
    print("no network")
`
	a := s.multipart("/api/v1/exec/sync",
		part{name: "metadata", contentType: "application/json", body: metadata},
		part{name: "tar", filename: "project.tar", body: tarOf(t, file{"main.py", program})})
	r := a.json(t)
	if e, _ := r["error"].(map[string]any); e["code"] == "unavailable" || strings.Contains(fmt.Sprint(e["message"]), "Temporary failure resolving") {
		skipWithout(t, "index", false)
	}
	if r["stdout"] != "optional input string 2.2.0 3\ncompiled\nno network\n" || r["status"] != "succeeded" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if list, _ := r["resolved_requirements"].([]any); !slices.Contains(list, any("pandas==2.2.0")) {
		t.Errorf("resolved %v", list)
	}
}

// counting prints a line each tenth of a second: what is lost or doubled shows.
const counting = `{"code":"import time\nfor i in range(80):\n  print(i, flush=True); time.sleep(0.1)"}`

func counted() string {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func (s *server) prints(id string) {
	s.t.Helper()
	awaittest.Until(s.t, id+" prints", func() bool {
		out, _ := s.get("/api/v1/executions/" + id).json(s.t)["stdout"].(string)
		return strings.Count(out, "\n") > 5
	})
}

func TestKillingThePluginHurtsNoProgramInAContainer(t *testing.T) {
	needtest.Long(t, "TestKillingTheCoreHurtsNoProgramInAContainer")
	s := startDocker(t)
	id := s.async(counting)
	s.prints(id)
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(id, "succeeded", "failed", "lost", "killed"); r["status"] != "succeeded" || r["stdout"] != counted() {
		t.Errorf("%v", r)
	}
	awaittest.Until(t, "another plugin process serves", func() bool { p := s.pluginPID(); return p != 0 && p != pid })
	if r := s.post("/api/v1/exec/sync", `{"code":"print(2)"}`).json(t); r["stdout"] != "2\n" {
		t.Error(r)
	}
}

func TestKillingTheCoreHurtsNoProgramInAContainer(t *testing.T) {
	s := startDocker(t)
	id := s.async(counting)
	s.prints(id)
	plugin := s.plugin()
	s.kill()
	awaittest.Until(t, "the plugin ends", func() bool { return syscall.Kill(plugin, 0) != nil })
	s.start()
	if r := s.wait(id, "succeeded", "failed", "lost", "killed"); r["status"] != "succeeded" || r["stdout"] != counted() {
		t.Errorf("%v", r)
	}
}

func TestAProgramThatEndsWhileNobodyIsThereHasItsResult(t *testing.T) {
	needtest.Long(t, "the tests of the docker backend")
	s := startDocker(t)
	id := s.async(`{"code":"print('up', flush=True)\nimport time, sys\ntime.sleep(1)\nprint('down'); sys.exit(7)"}`)
	awaittest.Until(t, "it prints", func() bool {
		out, _ := s.get("/api/v1/executions/" + id).json(t)["stdout"].(string)
		return out != ""
	})
	plugin := s.plugin()
	_ = syscall.Kill(plugin, syscall.SIGKILL) // with the core: nobody supervises
	s.kill()
	ended := time.NewTimer(2 * time.Second) //nolint:forbidigo // the program's own second, which nobody can see
	<-ended.C
	s.start()
	if r := s.wait(id, "succeeded", "failed", "lost", "killed"); r["status"] != "failed" || r["exit_code"] != 7.0 || r["stdout"] != "up\ndown\n" {
		t.Errorf("%v", r)
	}
}

func TestAPreparationDoesNotOutliveItsPlugin(t *testing.T) {
	needtest.Long(t, "the tests of the docker backend")
	s := startDocker(t)
	id := s.async(`{"code":"1","pre_commands":["sleep 600"]}`)
	preparing := func() []string { return dockertest.Containers(t, s.label(), "python-executor.kind=prepare") }
	awaittest.Until(t, "it is prepared", func() bool { return len(preparing()) == 1 })
	left := preparing()[0]
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, "its container is gone", func() bool { return !slices.Contains(preparing(), left) })
	s.do(s.request("DELETE", "/api/v1/executions/"+id, nil))
	s.wait(id, "killed", "lost", "failed")
	awaittest.Until(t, "no other is there", func() bool { return len(preparing()) == 0 })
}

func TestAContainerThatIsKilledLosesItsExecutionAndNothingElse(t *testing.T) {
	needtest.Long(t, "the tests of the docker backend")
	s := startDocker(t, "PYEXEC_BACKENDS_DOCKER_POOL_MIN_IDLE=0", "PYEXEC_BACKENDS_DOCKER_POOL_SESSIONS=0")
	id := s.async(`{"code":"print('up', flush=True)\nimport time; time.sleep(600)"}`)
	s.up(id)
	for _, c := range s.sandboxes() {
		dockertest.Kill(t, c)
	}
	s.wait(id, "lost")
	if r := s.post("/api/v1/exec/sync", `{"code":"print(2)"}`).json(t); r["stdout"] != "2\n" {
		t.Error(r)
	}
}
