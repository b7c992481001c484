//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// describe is what a table compares of a Result.
func describe(res executor.Result) string {
	s := string(res.Status)
	if res.ExitCode != nil {
		s += fmt.Sprintf(" exit %d", *res.ExitCode)
	}
	if res.Signal != "" {
		s += " " + res.Signal
	}
	if f := res.Failure; f != nil {
		s += fmt.Sprintf(" %s/%s", f.Phase, f.Code)
	}
	return s
}

func TestVerdicts(t *testing.T) {
	r := startRunner(t, testConfig(t))
	command := func(argv ...string) Start {
		s := shell("")
		s.Command = argv
		return s
	}
	entry := func(name string) Start {
		s := python("print(1)")
		s.Entrypoint, s.Code = name, ""
		return s
	}
	for _, c := range []struct {
		name  string
		start Start
		want  string
	}{
		{"exit 0 succeeds", shell("exit 0"), "succeeded exit 0"},
		{"another exit code fails", shell("exit 7"), "failed exit 7"},
		{"exit 126 is the program's", shell("exit 126"), "failed exit 126"},
		{"exit 127 is the program's", shell("exit 127"), "failed exit 127"},
		{"a signal of its own fails", shell("kill -SEGV $$"), "failed SIGSEGV"},
		{"kill -9 of itself is no limit", shell("kill -9 $$"), "failed SIGKILL"},
		{"a command that is not there", command("no-such-program"), "failed start/not_found"},
		{"a path that is not there", command("/no/such/program"), "failed start/not_found"},
		{"a file that cannot be executed", command("/etc/passwd"), "failed start/invalid"},
		{"a folder as command", command("/etc"), "failed start/invalid"},
		{"an empty command name", command(""), "failed start/invalid"},
		{"a zero byte in an argument", command("/bin/echo", "a\x00b"), "failed prepare/invalid"},
		{"python code", python("import sys; sys.exit(5)"), "failed exit 5"},
		{"an uncaught exception", python("raise ValueError"), "failed exit 1"},
		{"no entrypoint at all", entry(""), "failed prepare/invalid"},
		{"an entrypoint that does not exist", entry("nope.py"), "failed prepare/invalid"},
		{"an entrypoint outside", entry("../../etc/passwd"), "failed prepare/invalid"},
		{"an absolute entrypoint", entry("/etc/passwd"), "failed prepare/invalid"},
		{"a folder as entrypoint", entry("."), "failed prepare/invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, _ := r.run(t, c.start, RunInput{})
			if got := describe(res); got != c.want {
				t.Errorf("got %q, want %q (%+v)", got, c.want, res.Failure)
			}
		})
	}
}

func TestAScriptWithoutInterpreterCannotBeExecuted(t *testing.T) {
	r := startRunner(t, testConfig(t))
	ws := makeTar(t, file("no-shebang", "echo hello"), file("bad-shebang", "#!/no/such/interpreter\n"))
	ws[0].h.Mode, ws[1].h.Mode = 0o755, 0o755
	for _, name := range []string{"no-shebang", "bad-shebang"} {
		start := shell("")
		start.Command = []string{"./" + name}
		res, _ := r.run(t, start, RunInput{Workspace: ws.reader(t)})
		if got := describe(res); got != "failed start/invalid" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestTheEnvironmentIsExactlyThis(t *testing.T) {
	t.Setenv("CANARY", "must not be seen")
	r := startRunner(t, testConfig(t))
	start := shell("")
	start.Command = []string{"/usr/bin/env"}
	start.Env = map[string]string{"MINE": "1", "PATH": "/bin", "PYTHONUNBUFFERED": ""}
	_, rec := r.run(t, start, RunInput{})
	var names []string
	for line := range strings.Lines(rec.stdout()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names = append(names, name)
		switch {
		case name == "PATH" && value != "/bin", name == "LANG" && value != "C.UTF-8",
			name == "TMPDIR" && sandbox.ProbeTmpfs() == nil && value != "/tmp":
			t.Errorf("%s=%s", name, value)
		}
	}
	if got := strings.Join(names, " "); got != "HOME LANG MINE PATH TMPDIR" {
		t.Errorf("got %s", got)
	}
}

func TestAProgramSeesOnlyWhatIsItsOwn(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := python(`
import os, sys, tempfile, resource
print(sys.argv, os.getcwd() == os.environ["HOME"], sys.path[0] == os.getcwd())
print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
print(resource.getrlimit(resource.RLIMIT_CORE), oct(os.umask(0)))
print([l.split()[1] for l in open("/proc/self/status") if l.startswith("NoNewPrivs")])
temp = tempfile.gettempdir()
print(temp == os.environ["TMPDIR"], temp.startswith(os.getcwd() + "/"), os.listdir("."), oct(os.stat(".").st_mode & 0o777))
open("/dev/stdout", "w").write("reopened\n")
parent = os.getppid() or 1  # in a box the runner cannot be seen, but init
if os.getuid() != os.stat("/proc/%d" % parent).st_uid and os.getuid() == int(os.environ["SLOT"]):
    try: os.kill(parent, 9); print("killed the runner")
    except PermissionError: print("may not")
`)
	start.Env = map[string]string{"SLOT": strconv.Itoa(testUID)}
	_, rec := r.run(t, start, RunInput{})
	want := []string{
		"['main.py'] True True", "['0', '1', '2'] 4", "True True", "(0, 0) 0o22", "['1']", "True False ['main.py'] 0o700", "reopened",
	}
	if isRoot() { // the runner is another user's
		want = append(want, "may not")
	}
	if got := strings.TrimSpace(rec.stdout()); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\n%s\nwant\n%s", got, rec.stderr(), strings.Join(want, "\n"))
	}
}

func TestStdin(t *testing.T) {
	r := startRunner(t, testConfig(t))
	big := strings.Repeat("0123456789abcdef", 1<<16)
	for _, c := range []struct {
		name  string
		stdin io.Reader
		start Start
		want  string
	}{
		{"none is empty and closed", nil, shell("cat; echo end"), "end\n"},
		{"given is read to its end", strings.NewReader("hello"), shell("cat"), "hello"},
		{"empty is closed", strings.NewReader(""), shell("cat; echo end"), "end\n"},
		{"1 MiB goes through", strings.NewReader(big), shell("wc -c"), "1048576\n"},
		{"a program that does not read it", strings.NewReader(big), shell("echo done"), "done\n"},
		{"a program that closes it and goes on", strings.NewReader(big), shell("exec <&-; echo done"), "done\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, rec := r.run(t, c.start, RunInput{Stdin: c.stdin})
			if rec.stdout() != c.want || describe(res) != "succeeded exit 0" {
				t.Errorf("got %s with %.80q, want %q; stderr %.80q, failure %+v\n%s", describe(res), rec.stdout(), c.want, rec.stderr(), res.Failure, r.condition(t))
			}
		})
	}
}

func TestAnInputThatFailsIsReturned(t *testing.T) {
	r := startRunner(t, testConfig(t))
	broken := errors.New("the upload broke off")
	for _, in := range []RunInput{
		{Workspace: io.MultiReader(strings.NewReader("x"), failing{broken})},
		{Stdin: failing{broken}},
	} {
		_, err := r.Run(t.Context(), shell("sleep 1000000"), in, newRecord())
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if res, _ := r.run(t, shell("exit 0"), RunInput{}); res.Status != executor.StatusSucceeded {
		t.Errorf("the next one: %s", describe(res))
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAReaderThatBlocksIsClosedWhenTheProgramEnds(t *testing.T) {
	r := startRunner(t, testConfig(t))
	pr, pw := io.Pipe()
	defer pw.Close() //nolint:errcheck // a test's pipe
	res, _ := r.run(t, shell("exit 0"), RunInput{Stdin: pr})
	if res.Status != executor.StatusSucceeded {
		t.Error(describe(res))
	}
	if _, err := pw.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the reader was not closed: %v", err)
	}
}

func TestCancel(t *testing.T) {
	r := startRunner(t, testConfig(t))
	t.Run("before the start gives killed without Started", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(nil)
		rec := newRecord()
		res, err := r.Run(ctx, shell("exit 0"), RunInput{}, rec)
		if err != nil || res.Status != executor.StatusKilled || len(rec.kinds) > 0 {
			t.Errorf("%v %s %v", err, describe(res), rec.kinds)
		}
	})
	t.Run("while the workspace is coming", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		pr, pw := io.Pipe()
		go func() {
			_, _ = pw.Write(make([]byte, 100))
			cancel(nil)
		}()
		res, err := r.Run(ctx, shell("exit 0"), RunInput{Workspace: pr}, newRecord())
		if err != nil || res.Status != executor.StatusKilled {
			t.Errorf("%v %s", err, describe(res))
		}
	})
	for _, c := range []struct {
		name, script, want string
		limits             []said
	}{
		{"of a silent program", "echo up; exec sleep 1000000", "killed SIGTERM", nil},
		{"of a flooding program", "echo up; exec yes", "killed SIGTERM", nil},
		{"of a program that ignores SIGTERM", "trap '' TERM; echo up; while :; do sleep 0.01; done", "killed SIGKILL", []said{{"up", agent.LimitGrace}}},
		{"of a program that ends well within the grace", "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", "killed exit 0", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			rec, start := newRecord(), shell(c.script)
			rec.tells(t, &start, c.limits...)
			tell := rec.emit
			rec.emit = func(e executor.Event) error {
				if strings.Contains(rec.out[0].String(), "up") {
					cancel(nil)
				}
				return tell(e)
			}
			start.Limits.OutputBytes = 1 << 20
			res, err := r.Run(ctx, start, RunInput{}, rec)
			if got := describe(res); err != nil || got != c.want {
				t.Errorf("%v: got %q, want %q", err, got, c.want)
			}
		})
	}
}

func TestTheTimeoutStaysWhateverTheProgramSays(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for _, c := range []struct {
		script string
		limits []said
		want   string
	}{
		{"echo ready; sleep 1000000", []said{{"ready", agent.LimitTimeout}}, "timed_out SIGTERM run/exhausted"},
		{"trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", []said{{"ready", agent.LimitTimeout}}, "timed_out exit 0 run/exhausted"},
		{"trap '' TERM; echo ready; while :; do sleep 0.01; done", []said{{"ready", agent.LimitTimeout}, {"ready", agent.LimitGrace}}, "timed_out SIGKILL run/exhausted"},
	} {
		res, _ := r.told(t, shell(c.script), c.limits...)
		if got := describe(res); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
}

// A shell that cannot fork any more, or whose child is killed, would end by itself: it has to be killed first.
func TestWhatIsKilledHasNoTimeToExit(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for range 10 {
		start := shell("trap '' TERM; for i in $(seq 40); do sleep 1000000 & done; echo up; while :; do (exit 0); done")
		start.Limits.PIDs = 100
		res, _ := r.told(t, start, said{"up", agent.LimitTimeout}, said{"up", agent.LimitGrace})
		if got := describe(res); got != "timed_out SIGKILL run/exhausted" {
			t.Fatalf("got %q", got)
		}
	}
}

func TestASinkErrorStopsTheJobAndComesBack(t *testing.T) {
	r := startRunner(t, testConfig(t))
	full := errors.New("the log is full")
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindOutput {
			return full
		}
		return nil
	}
	start := shell("yes")
	start.Limits.OutputBytes = executor.Unlimited
	if _, err := r.Run(t.Context(), start, RunInput{}, rec); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if res, _ := r.run(t, shell("exit 0"), RunInput{}); res.Status != executor.StatusSucceeded {
		t.Errorf("the next one: %s", describe(res))
	}
}

func TestNothingIsLeftAfterwards(t *testing.T) {
	cfg := testConfig(t)
	r := startRunner(t, cfg)
	for range 3 {
		r.run(t, python(`
import os
d = "."
for i in range(300):
    d = d + "/deep"
    os.mkdir(d)
os.mkdir("locked"); open("locked/f", "w").close(); os.chmod("locked", 0)
os.symlink("/etc", "etc")
`), RunInput{})
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr)
	}
	entries, err := os.ReadDir(cfg.WorkRoot)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v\n%s", entries, err, r.stderr)
	}
	if left := sandbox.Cgroups(cfg.Cgroups).Children(); len(left) > 0 {
		t.Errorf("control groups left behind: %v", left)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
}
