//go:build linux

package batch

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// probe prints what a program can do with the folders that are its arguments.
const probe = `
import os, sys
for top in sys.argv[1:]:
    try: print("lists", top, os.listdir(top))
    except PermissionError: pass
    for name in ("", "/new", "/data/new", "/logs/new", "/out/new", "/out/events", "/file", "/input/start.json"):
        for mode in ("r", "a"):
            try: open(top + name, mode); print("opens", mode, top + name)
            except (PermissionError, IsADirectoryError, FileNotFoundError): pass
    try: os.chmod(top, 0o777); print("changes", top)
    except PermissionError: pass
print(sorted(k for k in os.environ if k.startswith("NOMAD")))
try: print(open("/proc/1/environ").read())
except PermissionError: pass
for fd in range(64):
    try: print("opens", open("/proc/1/fd/%d" % fd))
    except (PermissionError, FileNotFoundError): pass
for what in (lambda: os.kill(1, 15), lambda: os.kill(1, 9)):
    try: what(); print("kills")
    except PermissionError: pass
print(os.getuid(), [l.split()[1] for l in open("/proc/self/status") if l.startswith(("CapEff", "CapBnd", "NoNewPrivs"))])
`

func TestAProgramReachesNothingOfThePlace(t *testing.T) {
	p := newPlace(t)
	must(t, os.WriteFile(filepath.Join(p.alloc, "file"), []byte("x"), 0o666))
	must(t, os.Chown(p.local, testUID, testUID)) // its owner could open it again
	start := p.python(probe)
	start.Start.Args = []string{p.alloc, p.local, p.secrets}
	o := p.run(start)
	want := "[]\n" + strconv.Itoa(testUID) + " ['0000000000000000', '0000000000000000', '1']\n"
	if o.brief() != "succeeded exit 0" || o.out[0] != want {
		t.Errorf("%s\n%s%s", o.brief(), o.out[0], o.out[1])
	}
}

func TestAProgramReachesOnlyWhatIsPrepared(t *testing.T) {
	p := newPlace(t)
	must(t, os.WriteFile(filepath.Join(p.alloc, "file"), []byte("x"), 0o666))
	folder := filepath.Join(p.alloc, "data", "prepared")
	must(t, os.MkdirAll(filepath.Join(folder, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "bin", "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(folder, job.PreparedFile), []byte(`{"path":"`+folder+`/bin","requirements":["a==1"]}`), 0o644))
	start := p.start("tool; " + "for f in " + p.alloc + "/* " + p.alloc + "/data/* " + p.alloc + "/file " + p.alloc + "/logs/x " + p.alloc + "/data/x " + folder + "/x " + folder + "/bin/x; do cat $f; touch $f && echo made $f; done 2>/dev/null; ls " + p.alloc + "/data 2>/dev/null")
	start.Prepared = folder
	o := p.run(start)
	if o.out[0] != "tool\n" || len(o.result.Requirements) != 1 || len(o.started[0].Requirements) != 1 {
		t.Errorf("%s\n%s%s%s", o.brief(), o.out[0], o.out[1], &o.stderr)
	}
}

func TestWhatCannotBeHiddenIsRefused(t *testing.T) {
	p := newPlace(t)
	link := filepath.Join(p.root, "link")
	must(t, os.Symlink(p.local, link))
	start := p.start("echo never")
	start.Protect = []string{link}
	if o := p.run(start); executor.CodeOf(o.err) != executor.Internal || !strings.Contains(o.brief(), "hide "+link) || o.out[0] != "" {
		t.Error(o.brief())
	}
}

func TestSIGTERMIsACancel(t *testing.T) {
	for name, c := range map[string]struct{ trap, wants string }{
		"a program that ends":      {"trap 'echo bye; exit 4' TERM", "killed exit 4"},
		"a program that does not":  {"trap 'echo bye' TERM", "killed SIGKILL"},
		"a program that knows not": {":", "killed SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			says := strings.Contains(c.trap, "bye")
			o := awaittest.Ladder(t, time.Second, func(grace time.Duration) (*outcome, bool) {
				p := newPlace(t)
				start := p.start(c.trap + "; echo up; while :; do sleep 0.05; done")
				if c.wants == "killed SIGKILL" {
					start.Start.Limits.KillGrace = grace
				}
				p.writeJSON(job.StartFile, start)
				r := p.launch("job")
				awaittest.Until(t, "output", func() bool { return strings.Contains(p.read().out[0], "up") })
				must(t, r.signal(unix.SIGTERM))
				o := p.outcome(r)
				return o, !says || strings.Contains(o.out[0], "bye\n")
			})
			if o.brief() != c.wants || o.begin.ExecutionID != "exe_1" {
				t.Errorf("%s %q\n%s", o.brief(), o.out, &o.stderr)
			}
		})
	}
}

func TestEachStopSignalOfAnImageIsACancel(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.Signal(37)} {
		p := newPlace(t)
		start := p.start("trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
		p.writeJSON(job.StartFile, start)
		r := p.launch("job")
		awaittest.Until(t, "output", func() bool { return strings.Contains(p.read().out[0], "up") })
		must(t, r.signal(s))
		if o := p.outcome(r); o.brief() != "killed exit 4" {
			t.Errorf("%v: %s\n%s", s, o.brief(), &o.stderr)
		}
	}
}

// signal sends a signal to the runner, as a container's runtime does: from outside of its namespace.
func (r *process) signal(s unix.Signal) error { return unix.Kill(r.Process.Pid, s) }

func TestAJobThatIsCancelledBeforeItsProgramIsKilled(t *testing.T) {
	p := newPlace(t)
	start := p.start("echo never")
	start.Start.Workspace = true
	must(t, unix.Mkfifo(filepath.Join(p.input, job.WorkspaceFile), 0o600)) // it never comes
	p.writeJSON(job.StartFile, start)
	r := p.launch("job")
	hold, err := os.OpenFile(filepath.Join(p.input, job.WorkspaceFile), os.O_RDWR, 0)
	must(t, err)
	defer hold.Close()
	awaittest.Until(t, "the runner", func() bool { return p.read().begin.ExecutionID != "" })
	must(t, r.signal(unix.SIGTERM))
	if o := p.outcome(r); o.brief() != "killed" || o.code != ExitNotRun || len(o.started) != 0 {
		t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
	}
}

func TestAKilledRunnerLeavesAPrefix(t *testing.T) {
	seed := rand.New(rand.NewPCG(14, uint64(time.Now().UnixNano()))) //nolint:gosec // a test
	for range 12 {
		p := newPlace(t)
		start := p.python("import os, sys\nn = 0\nwhile True:\n    os.write(1, (str(n) + '\\n').encode()); n += 1\n    if n % 100 == 0: os.write(2, b'\\xff' * 5000)")
		start.Start.Limits.OutputBytes = executor.Unlimited
		p.writeJSON(job.StartFile, start)
		r := p.launch("job")
		size := int64(seed.IntN(300_000))
		awaittest.Until(t, "events", func() bool {
			st, err := os.Stat(filepath.Join(p.output, job.EventsFile))
			return err == nil && st.Size() >= size
		})
		must(t, r.signal(unix.SIGKILL))
		o := p.outcome(r)
		if o.result != nil || o.err != nil {
			t.Fatalf("%s", o.brief())
		}
		want, n := &strings.Builder{}, 0
		for ; want.Len() < len(o.out[0]); n++ {
			_, _ = io.WriteString(want, strconv.Itoa(n)+"\n")
		}
		if !strings.HasPrefix(want.String(), o.out[0]) || len(bytes.Trim([]byte(o.out[1]), "\xff")) > 0 {
			t.Errorf("%d bytes of stdout are no prefix", len(o.out[0]))
		}
		awaittest.Until(t, "the end of the program", func() bool { return !runsAs(t, testUID) })
	}
}

// runsAs reports whether a process of uid is alive.
func runsAs(t *testing.T, uid int) bool {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && int(st.Uid) == uid {
			return true
		}
	}
	return false
}

func TestNothingOfAProgramIsLeft(t *testing.T) {
	p := newPlace(t)
	o := p.run(p.start("setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & echo $!; exit 5"))
	if o.brief() != "failed exit 5" {
		t.Errorf("%s\n%s", o.brief(), &o.stderr)
	}
	if runsAs(t, testUID) {
		t.Error("a process is left")
	}
	left, err := os.ReadDir(p.work)
	must(t, err)
	if len(left) > 0 {
		t.Error(left)
	}
}

func TestAFullMemoryIsTheProgramsEnd(t *testing.T) {
	all, err := sandbox.FindCgroups()
	needtest.Need(t, err == nil && len(all) > 0, needtest.Cgroup, "there are no control groups of our own")
	p := newPlace(t)
	if p.groups, err = all.Make("pyexec-test-batch-" + strconv.Itoa(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, p.groups.Remove()) })
	bounded := false
	for _, dir := range p.groups {
		for _, file := range []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"} {
			if os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(256<<20)), 0o600) == nil {
				bounded = true
			}
		}
	}
	needtest.Need(t, bounded, needtest.Cgroup, "there is none for memory")
	start := p.python("held = []\nwhile True: held.append(bytearray(4 << 20))")
	start.Start.Limits.MemoryBytes = 1 << 30
	o := p.run(start)
	if !strings.HasPrefix(o.brief(), "out_of_memory SIGKILL run exhausted config.memory_mb") || o.code != 128+9 {
		t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
	}
}

func TestAFullDiskOfTheEventsIsTold(t *testing.T) {
	p := newPlace(t)
	must(t, os.Mkdir(p.output, 0o700))
	must(t, unix.Mount("small", p.output, "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { must(t, unix.Unmount(p.output, unix.MNT_DETACH)) })
	o := p.run(p.start("while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done"))
	if o.result == nil && executor.CodeOf(o.err) != executor.Internal || o.code != ExitNotRun || !strings.Contains(o.stderr.String(), "no space left") {
		t.Errorf("%s, code %d\n%s", o.brief(), o.code, &o.stderr)
	}
	// An event that does not fit has up to MaxOutputData, and small ones take more room than their output.
	if want := strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123456789\n", 1+len(o.out[0])/71); !strings.HasPrefix(want, o.out[0]) || len(o.out[0]) < 256<<10 {
		t.Errorf("%d bytes are no prefix", len(o.out[0]))
	}
}

func TestAProgramGetsFoldersThatThePlaceHasMadeForRoot(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{p.work, p.temp} {
		must(t, os.Chown(dir, 0, 0))
		must(t, os.Chmod(dir, 0o755))
	}
	o := p.run(p.start("touch a $TMPDIR/b && stat -c '%a %u' . && stat -c %a $TMPDIR"))
	if o.out[0] != "700 "+uid+"\n1777\n" {
		t.Errorf("%s %q", o.brief(), o.out)
	}
}

func TestThePathIsThatOfTheImageUnlessTheInputHasOne(t *testing.T) {
	p := newPlace(t)
	start := p.start("")
	start.Start.Command, start.Start.Path = []string{"/bin/sh", "-c", "echo $PATH"}, ""
	if o := p.run(start); o.out[0] != os.Getenv("PATH")+"\n" {
		t.Errorf("%s %q", o.brief(), o.out)
	}
}
