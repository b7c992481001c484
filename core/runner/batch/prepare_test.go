//go:build linux

package batch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/job"
)

// prepare returns a preparation. Its folder is in the folder that tasks share.
func (p *place) prepare() job.Prepare {
	l := limits()
	l.OutputBytes = 0
	return job.Prepare{
		ExecutionID: "exe_1", Config: p.config(), Folder: filepath.Join(p.alloc, "data", "prepared"), Path: "/usr/bin:/bin", Network: true,
		Limits: l, Protect: []string{p.alloc, p.local, p.secrets}, InstallEnv: map[string]string{"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"},
	}
}

// runPrepare runs a preparation to its end. Its events are in a folder of their own.
func (p *place) runPrepare(in job.Prepare) *outcome {
	p.t.Helper()
	return p.outcome(p.launchPrepare(in))
}

func (p *place) launchPrepare(in job.Prepare) *process {
	p.t.Helper()
	p.output = filepath.Join(p.alloc, "prepare")
	p.writeJSON(job.PrepareFile, in)
	return p.launch("job-prepare")
}

// runAfter runs an Execution that uses what was prepared.
func (p *place) runAfter(in job.Prepare, start job.Start) *outcome {
	p.t.Helper()
	p.output = filepath.Join(p.alloc, "out")
	start.Prepared = in.Folder
	return p.run(start)
}

// wheels makes a folder with a wheel of greeting 1.0, which pip reads.
func (p *place) wheels() string {
	p.t.Helper()
	if err := exec.Command("/usr/bin/python3", "-I", "-c", "import pip, venv").Run(); err != nil {
		p.t.Skip("SKIPPED: the machine's Python has neither pip nor venv")
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"greeting.py":                     "word = 'hello from a wheel'\n",
		"greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
		"greeting-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"greeting-1.0.dist-info/RECORD":   "",
	} {
		f, err := z.Create(name)
		must(p.t, err)
		_, err = f.Write([]byte(text))
		must(p.t, err)
	}
	must(p.t, z.Close())
	dir := filepath.Join(p.root, "wheels")
	must(p.t, os.Mkdir(dir, 0o755))
	must(p.t, os.WriteFile(filepath.Join(dir, "greeting-1.0-py3-none-any.whl"), b.Bytes(), 0o644))
	return dir
}

func TestRequirementsAreInstalledForTheProgram(t *testing.T) {
	p := newPlace(t)
	in := p.prepare()
	in.InstallEnv["PIP_FIND_LINKS"] = p.wheels()
	in.Requirements = []string{"greeting==1.0"}
	p.write(job.NetrcFile, []byte("machine example.test login a password never-seen\n"))
	o := p.runPrepare(in)
	if o.prepared == nil || o.code != 0 || !slices.Equal(o.prepared.Requirements, []string{"greeting==1.0"}) || o.prepared.PythonVersion == "" || len(o.progress) == 0 {
		t.Fatalf("%s, code %d, %+v\n%s", o.brief(), o.code, o.prepared, &o.stderr)
	}
	if found, err := exec.Command("grep", "-rl", "never-seen", in.Folder).Output(); err == nil {
		t.Errorf("the credentials are left in %s", found)
	}
	start := p.python(`
import greeting, os, sys, sysconfig
print(greeting.word, sys.version.split()[0])
for folder in (sysconfig.get_path("purelib"), os.path.dirname(greeting.__file__), sys.prefix, sys.prefix + "/..", sys.prefix + "/../.."):
    try: open(folder + "/new", "w"); print("writes", folder)
    except PermissionError: pass
try: os.listdir(sys.prefix + "/../..", ); print("lists")
except PermissionError: pass
`)
	o = p.runAfter(in, start)
	if v := o.result.PythonVersion; o.out[0] != "hello from a wheel "+v+"\n" || !slices.Equal(o.result.Requirements, []string{"greeting==1.0"}) || !slices.Equal(o.started[0].Requirements, o.result.Requirements) {
		t.Errorf("%s %q %+v\n%s", o.brief(), o.out, o.result, &o.stderr)
	}
}

func TestAFailureOfRequirementsIsTheUsers(t *testing.T) {
	p := newPlace(t)
	in := p.prepare()
	in.InstallEnv["PIP_FIND_LINKS"] = p.wheels()
	in.Requirements = []string{"no-such-package==9.9.9"}
	o := p.runPrepare(in)
	if !strings.HasPrefix(o.brief(), "failed prepare invalid requirements_txt: ") || !strings.Contains(o.brief(), "no-such-package") || o.code != ExitNotRun || strings.Contains(o.brief(), in.Folder) {
		t.Errorf("%s, code %d", o.brief(), o.code)
	}
	p = newPlace(t)
	in = p.prepare()
	in.Requirements, in.PythonVersion = []string{"greeting"}, "2.1"
	if o := p.runPrepare(in); executor.CodeOf(o.err) != executor.Invalid || !strings.Contains(o.brief(), "python_version: must match") {
		t.Error(o.brief())
	}
	p = newPlace(t)
	in = p.prepare()
	in.Requirements, in.Path = []string{"greeting"}, "/nowhere"
	if o := p.runPrepare(in); !strings.HasPrefix(o.brief(), "failed prepare invalid requirements_txt: the image has no Python") {
		t.Error(o.brief())
	}
}

func TestWhatCommandsMakeIsTheWorkspace(t *testing.T) {
	p := newPlace(t)
	p.write(job.WorkspaceFile, tarOf(t, tar.Header{Name: "data.txt", Mode: 0o600, Size: 3}, tar.Header{Name: "old", Mode: 0o644}))
	in := p.prepare()
	in.CommandEnv = map[string]string{"GREETING": "it's here"}
	in.Commands = []string{
		"echo \"$GREETING\" >made; rm old; mkdir -p d; ln -s ../made d/link; echo x >d/run; chmod 755 d/run; mkdir closed; chmod 0 closed",
		"id -u; ls " + p.alloc + " " + p.alloc + "/data " + p.secrets + " && exit 1; touch " + in.Folder + "/new && exit 2; python3 -c 'import os; os.kill(1, 9)' && exit 3; echo last words",
	}
	o := p.runPrepare(in)
	if o.prepared == nil || o.prepared.Work == "" || o.code != 0 {
		t.Fatalf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
	}
	o = p.runAfter(in, p.start("cat made d/link; ls -R . ; stat -c '%a %u' data.txt d/run closed; echo x >made; ls "+o.prepared.Work))
	want := "it's here\nit's here\n.:\nclosed\nd\ndata.txt\nmade\n"
	if !strings.HasPrefix(o.out[0], want) || !strings.Contains(o.out[0], "600 "+uid+"\n755 "+uid+"\n700 "+uid+"\n") || strings.Count(o.out[0], "made") != 1 {
		t.Errorf("%s\n%s%s", o.brief(), o.out[0], o.out[1])
	}
	if left, err := os.ReadFile(filepath.Join(in.Folder, "work", "made")); err != nil || string(left) != "it's here\n" {
		t.Errorf("%q, %v", left, err)
	}
}

func TestAFailingCommandIsTheUsers(t *testing.T) {
	for name, c := range map[string]struct {
		commands []string
		change   func(*job.Prepare)
		wants    string // the beginning and, behind a bar, another part
	}{
		"an exit code": {[]string{"true", "echo last words; exit 7"}, nil,
			`failed prepare invalid pre_commands: pre_commands[1] "echo last words; exit 7" ended with exit code 7:` + "\nlast words"},
		"a signal": {[]string{"kill -SEGV $$"}, nil, `failed prepare invalid pre_commands: pre_commands[0] "kill -SEGV $$" ended with exit code 139 (SIGSEGV)`},
		"too much": {[]string{"for n in 1 2 3 4 5 6 7 8 9; do head -c 1000000 /dev/zero >f$n; done; sleep 1000"}, func(in *job.Prepare) { in.Limits.DiskBytes = 4 << 20 },
			`failed prepare exhausted pre_commands: pre_commands[0] "for n|wrote more than 4 MiB`},
		"too much at its end": {[]string{"for n in 1 2 3 4 5 6 7 8 9; do head -c 1000000 /dev/zero >f$n; done"}, func(in *job.Prepare) { in.Limits.DiskBytes = 4 << 20 },
			`failed prepare exhausted pre_commands: pre_commands[0] "for n|wrote more than 4 MiB`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.prepare()
			in.Commands = c.commands
			if c.change != nil {
				c.change(&in)
			}
			o := p.runPrepare(in)
			begins, has, _ := strings.Cut(c.wants, "|")
			if !strings.HasPrefix(o.brief(), begins) || !strings.Contains(o.brief(), has) || o.code != ExitNotRun || o.prepared != nil {
				t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
			}
			if runsAs(t, testUID) {
				t.Error("a process is left")
			}
		})
	}
}

func TestACommandWithoutAnEndIsTheUsers(t *testing.T) {
	awaittest.Ladder(t, time.Second, func(timeout time.Duration) (*outcome, bool) {
		p := newPlace(t)
		in := p.prepare()
		in.Commands, in.Limits.Timeout = []string{"true", "echo up; sleep 1000000"}, timeout
		o := p.runPrepare(in)
		if !strings.HasSuffix(o.brief(), "\nup") { // too early
			return o, false
		}
		want := fmt.Sprintf("failed prepare exhausted pre_commands: pre_commands[1] %q not prepared within %s:\nup", in.Commands[1], timeout)
		if o.brief() != want || o.code != ExitNotRun || o.prepared != nil {
			t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
		}
		if runsAs(t, testUID) {
			t.Error("a process is left")
		}
		return o, true
	})
}

func TestAHostileWorkspaceFailsBeforeTheCommands(t *testing.T) {
	p := newPlace(t)
	p.write(job.WorkspaceFile, tarOf(t, tar.Header{Name: "../evil", Mode: 0o644}))
	in := p.prepare()
	in.Commands = []string{"echo never"}
	if o := p.runPrepare(in); !strings.HasPrefix(o.brief(), "failed prepare invalid : workspace: ") || strings.Contains(o.brief(), "never") {
		t.Error(o.brief())
	}
}

func TestALinkOutOfTheFolderIsNamed(t *testing.T) {
	p := newPlace(t)
	in := p.prepare()
	in.Commands = []string{"ln -s /etc/passwd out"}
	p.runPrepare(in)
	if o := p.runAfter(in, p.start("cat out")); !strings.HasPrefix(o.brief(), "failed prepare invalid : workspace: ") || !strings.Contains(o.brief(), "out") {
		t.Errorf("%s %q", o.brief(), o.out)
	}
}

func TestAPreparationThatIsCancelledIsKilled(t *testing.T) {
	p := newPlace(t)
	in := p.prepare()
	in.Commands = []string{"echo up; sleep 1000"}
	r := p.launchPrepare(in)
	awaittest.Until(t, "progress", func() bool { return len(p.read().progress) > 0 })
	must(t, r.signal(unix.SIGTERM))
	if o := p.outcome(r); o.brief() != "killed" || o.code != ExitNotRun {
		t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
	}
}

func TestProgressIsBounded(t *testing.T) {
	p := newPlace(t)
	in := p.prepare()
	in.Commands = []string{"n=0; while [ $n -lt 20000 ]; do echo $n; n=$((n+1)); done"}
	if o := p.runPrepare(in); o.prepared == nil || len(o.progress) == 0 || len(o.progress) > 1000 {
		t.Errorf("%s, %d times", o.brief(), len(o.progress))
	}
}
