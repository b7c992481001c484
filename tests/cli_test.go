package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// tree writes files below a new folder that programs' users could not even read: the CLI must send contents, not names.
func tree(t *testing.T, files ...file) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCLIInputMethods(t *testing.T) {
	dir := tree(t, file{"main.py", "import sys; from pkg import x; print('main', x.v, sys.argv[1:])"}, file{"pkg/x.py", "v=1"},
		file{"script.py", "print('script')"}, file{"train.py", "print('train')"}, file{".gitignore", "secret.txt\n"}, file{"secret.txt", "s"},
		file{".git/config", "c"}, file{"venv/pyvenv.cfg", "home = x"},
		file{"ls.py", "import os; print(sorted(os.listdir('.')))"})
	tarPath := filepath.Join(t.TempDir(), "p.tar")
	if err := os.WriteFile(tarPath, tarOf(t, file{"main.py", "print('tar')"}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"embedded", "remote"} {
		t.Run(mode, func(t *testing.T) {
			var env []string
			if mode == "remote" {
				env = []string{"PYEXEC_SERVER=" + startServer(t, nil).url}
			}
			tests := []struct {
				name  string
				args  []string
				stdin string
				want  string
			}{
				{"files", []string{"run", "--file", filepath.Join(dir, "script.py")}, "", "script\n"},
				{"a tar", []string{"run", tarPath}, "", "tar\n"},
				{"a folder", []string{"run", dir, "--", "a", "b c"}, "", "main 1 ['a', 'b c']\n"},
				{"a folder and an entrypoint", []string{"run", dir, "--entrypoint", "train.py"}, "", "train\n"},
				{"what is ignored stays at home", []string{"run", dir, "--entrypoint", "ls.py"}, "", "['.gitignore', 'ls.py', 'main.py', 'pkg', 'script.py', 'train.py']\n"},
				{"a file", []string{"run", filepath.Join(dir, "script.py")}, "", "script\n"},
				{"a pipe", []string{"run"}, "print('pipe')", "pipe\n"},
			}
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) {
					o := cli(t, env, strings.NewReader(test.stdin), test.args...)
					if o.code != 0 || o.stdout != test.want {
						t.Fatalf("%+v", o)
					}
				})
			}
		})
	}
}

func TestCLIExitCodesAndStreams(t *testing.T) {
	needtest.Long(t, "the tests of cli/internal/exit and cmd, and TestTheExamplesBehaveTheSameOnBothBackends")
	tests := []struct {
		name, code string
		args       []string
		want       int
		stdout     string
	}{
		{"the program's own code", "raise SystemExit(3)", nil, 3, ""},
		{"a signal", "import os; os.kill(os.getpid(), 15)", nil, 143, ""},
		{"a timeout", "import time; print('x'); time.sleep(999)", []string{"--timeout", "1"}, 124, "x\n"},
		{"out of memory", "x = bytearray(1 << 30)", []string{"--memory", "64"}, 137, ""},
		{"bytes as they are", "import sys; sys.stdout.buffer.write(bytes(range(256)))", nil, 0, allBytes()},
		{"no cap on output", "import sys; sys.stdout.write('x' * (80 << 20))", nil, 0, strings.Repeat("x", 80<<20)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.want == 137 {
				skipWithout(t, "root", os.Geteuid() == 0)
			}
			o := cli(t, nil, strings.NewReader(test.code), append([]string{"run"}, test.args...)...)
			if test.want == 124 && o.stdout == "" { // on a busy machine an interpreter may need more than a second to start
				o = cli(t, nil, strings.NewReader(test.code), "run", "--timeout", "30")
			}
			if o.code != test.want || o.stdout != test.stdout {
				t.Fatalf("code %d, %d bytes of stdout, stderr %s", o.code, len(o.stdout), o.stderr)
			}
		})
	}
	for name, args := range map[string][]string{
		"an unknown flag":                 {"run", "--nonsense"},
		"a missing file":                  {"run", "/no/such/file.py"},
		"two explicit inputs":             {"run", "a.py", "--file", "b.py"},
		"an unreachable server":           {"run", "--server", "http://127.0.0.1:1", "--file", "/etc/hostname"},
		"submit without a server":         {"submit", "/etc/hostname"},
		"a command that is no command":    {"frobnicate"},
		"a timeout that is not a number":  {"run", "--timeout", "soon"},
		"an entrypoint that is not there": {"run", "--file", "/etc/hostname", "--entrypoint", "x.py"},
	} {
		t.Run(name, func(t *testing.T) {
			if o := cli(t, nil, strings.NewReader(""), args...); o.code != 125 || o.stderr == "" || o.stdout != "" {
				t.Fatalf("%+v", o)
			}
		})
	}
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func TestCLIOutputIsLiveAndCtrlCKills(t *testing.T) {
	s := startServer(t, nil)
	for _, mode := range []string{"embedded", "remote"} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.Command(binary, "run")
			cmd.Env = environ("PYEXEC_BACKENDS_UV_CACHE_DIR="+cacheDir, "PYEXEC_BACKENDS_UV_WORK_DIR="+filepath.Join(s.dir, "work"))
			if mode == "remote" {
				cmd.Env = append(cmd.Env, "PYEXEC_SERVER="+s.url)
			}
			cmd.Stdin = strings.NewReader("import time; print('live'); time.sleep(600)")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "live\n" {
				t.Fatal(line, err)
			}
			if len(s.programs()) == 0 {
				t.Error("the program is not seen in its work folder")
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit code %d", code)
			}
			s.noProgramsLeft()
			s.noFoldersLeft()
		})
	}
}

// TestCLIThatIsKilledTakesItsProgramsAlong holds although the command has no plugin that survives it.
func TestCLIThatIsKilledTakesItsProgramsAlong(t *testing.T) {
	work, err := os.MkdirTemp(filepath.Dir(cacheDir), "killed-")
	if err == nil {
		err = os.Chmod(work, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	env := []string{"PYEXEC_BACKENDS_UV_WORK_DIR=" + work}
	cmd := exec.Command(binary, "run")
	cmd.Env = environ(append(env, "PYEXEC_BACKENDS_UV_CACHE_DIR="+cacheDir)...)
	cmd.Stdin = strings.NewReader("import subprocess, time\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\nprint('live')\ntime.sleep(600)")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "live\n" {
		t.Fatal(line, err)
	}
	if len(leftovertest.Programs(work)) == 0 {
		t.Error("the program is not seen in its work folder")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	awaittest.Until(t, "the programs end", func() bool { return len(leftovertest.Programs(work)) == 0 })
	if o := cli(t, env, strings.NewReader("print(1)"), "run"); o.stdout != "1\n" {
		t.Errorf("the next command: %+v", o)
	}
	if left, err := filepath.Glob(filepath.Join(work, "[0-9a-f]*")); err != nil || len(left) > 0 {
		t.Errorf("the next command has left %v, %v", left, err)
	}
}

func TestCLIAgainstAServer(t *testing.T) {
	s := startServer(t, nil)
	env := []string{"PYEXEC_SERVER=" + s.url}
	dir := tree(t, file{"main.py", "import time\nfor i in range(3): print(i); time.sleep(0.05)\nopen('out.txt','w').write('kept')"})

	o := cli(t, env, nil, "submit", dir, "--async")
	id := strings.TrimSuffix(o.stdout, "\n")
	if o.code != 0 || !strings.HasPrefix(id, "exe_") || strings.ContainsAny(id, " \n") {
		t.Fatalf("%+v", o)
	}
	if o := cli(t, env, nil, "follow", "--tail", id); o.code != 0 || o.stdout != "0\n1\n2\n" {
		t.Fatalf("%+v", o)
	}
	if o := cli(t, env, nil, "logs", id); o.stdout != "0\n1\n2\n" {
		t.Fatalf("%+v", o)
	}
	if o := cli(t, env, nil, "ls"); !strings.Contains(o.stdout, id) {
		t.Fatalf("%+v", o)
	}
	o = cli(t, env, strings.NewReader("import time; time.sleep(600)"), "run", "--async")
	id = strings.TrimSpace(o.stdout)
	if o := cli(t, env, nil, "kill", id); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	if r := s.get("/api/v1/executions/" + id).json(t); r["status"] != "killed" {
		t.Fatal(r)
	}
	out := filepath.Join(t.TempDir(), "o")
	if o := cli(t, env, nil, "run", dir, "--output", out); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	if b, err := os.ReadFile(filepath.Join(out, "out.txt")); err != nil || string(b) != "kept" {
		t.Fatal(string(b), err)
	}
	o = cli(t, env, strings.NewReader("print('j')"), "run", "--json")
	var r map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r["stdout"] != "j\n" || r["status"] != "succeeded" {
		t.Fatalf("%v %+v", err, o)
	}
}

func TestCLIStdinIsForTheProgramOnlyWhenAsked(t *testing.T) {
	dir := tree(t, file{"main.py", "import sys; print(repr(sys.stdin.read()))"})
	if o := cli(t, nil, strings.NewReader("not code, not input"), "run", dir); o.stdout != "''\n" {
		t.Fatalf("%+v", o)
	}
	if o := cli(t, nil, strings.NewReader("fed"), "run", dir, "--stdin", "-"); o.stdout != "'fed'\n" {
		t.Fatalf("%+v", o)
	}
}

func TestCLIRequirements(t *testing.T) {
	needtest.Long(t, "the law on the uv backend")
	if os.Getenv("PYEXEC_TEST_OFFLINE") != "" {
		skipWithout(t, "index", false)
	}
	dir := tree(t, file{"main.py", "import six; print(six.__version__)"}, file{"requirements.txt", "six==1.16.0\n"})
	if o := cli(t, nil, nil, "run", dir); o.code != 0 || o.stdout != "1.16.0\n" {
		t.Fatalf("%+v", o)
	}
	script := "# /// script\n# dependencies = ['six==1.16.0']\n# ///\nimport six; print(six.__version__)"
	if o := cli(t, nil, strings.NewReader(script), "run"); o.code != 0 || o.stdout != "1.16.0\n" {
		t.Fatalf("%+v", o)
	}
	if o := cli(t, nil, strings.NewReader("print(1)"), "run", "--requirements", filepath.Join(tree(t, file{"r.txt", "no-such-package-zzzz==9.9\n"}), "r.txt")); o.code != 125 || !strings.Contains(o.stderr, "no-such-package-zzzz") {
		t.Fatalf("%+v", o)
	}
}

func TestCLIWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		skipWithout(t, "root", false)
	}
	home, err := os.MkdirTemp(filepath.Dir(cacheDir), "nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	if err := os.Chown(home, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	// The binary must be readable for that user, wherever the clone lies.
	copied := filepath.Join(home, "python-executor")
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "run")
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Stdin = strings.NewReader("print('unprivileged')")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stdout.String() != "unprivileged\n" {
		t.Fatalf("%v: %q\n%s", err, &stdout, &stderr)
	}
	awaittest.Until(t, "nothing is left", func() bool {
		return len(leftovertest.Programs(filepath.Join(home, ".cache/python-executor/uv/work"))) == 0
	})
}
