package zygote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestAProgramHasItsArgumentsAndItsEnd(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	text := "import sys\nprint(sys.argv, open('/proc/self/cmdline').read())\nprint('no', file=sys.stderr)\nsys.exit(3)"
	p, err := begin(t, z, text, func(r *Request) { r.Argv = append(r.Argv, "größe", "") })
	must(t, err)
	if p.PID() <= 0 {
		t.Errorf("process %d", p.PID())
	}
	out, errs, exit := p.finish(t)
	if want := "['main.py', 'größe', ''] " + python + "\x00main.py\x00größe\x00\x00\n"; out != want || errs != "no\n" {
		t.Errorf("%q %q", out, errs)
	}
	if exit.Status.ExitStatus() != 3 || exit.CPU <= 0 || exit.MaxRSS < 1<<20 {
		t.Errorf("%+v", exit)
	}
	p, err = begin(t, z, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", nil)
	must(t, err)
	if _, _, exit := p.finish(t); exit.Status.Signal() != unix.SIGTERM {
		t.Errorf("%#x", exit.Status)
	}
}

func TestVariablesAreThoseOfTheRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := filepath.Join(dir, "env")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", env).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cfg := usual(dir)
	cfg.Interpreter = filepath.Join(env, "bin", "python")
	z := start(t, cfg)
	const text = "import os, subprocess\nprint(dict(os.environ), open('/proc/self/environ').read(), subprocess.check_output('/usr/bin/env'))"
	first := run(t, z, text, nil)
	if strings.Contains(first, "PYTHONPATH") || !strings.Contains(first, "\x00PATH=/usr/bin:/bin\x00PYTHONUNBUFFERED=1\x00") {
		t.Errorf("%q", first)
	}
	want := []string{"A=1", "HOME=" + dir, "LANG=C.UTF-8", "PATH=/bin", "PYTHONUNBUFFERED=1", "Z=ö"}
	got := run(t, z, text, func(r *Request) { r.Env = want })
	for _, part := range []string{"{'A': '1'", strings.Join(want, "\x00"), `PATH=/bin\nPYTHONUNBUFFERED=1\nZ=\xc3\xb6\n'`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in %q", part, got)
		}
	}
	if again := run(t, z, text, nil); again != first {
		t.Errorf("%q after %q", again, first)
	}
}

func TestASlotThatIsNotUsedEnds(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	s, err := z.Next(awaittest.Context(t))
	must(t, err)
	s.Close()
	exit, err := s.Wait(awaittest.Context(t))
	if err != nil || exit.Status != 0 {
		t.Errorf("%+v %v", exit, err)
	}
	if s, err = z.Next(awaittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	must(t, unix.Kill(s.PID(), unix.SIGKILL))
	if err := s.Run(awaittest.Context(t), Request{Argv: z.cfg.argv(), Env: z.cfg.Env}); err == nil {
		t.Error("a killed copy runs")
	}
}

func TestEmptyKillsWhatRuns(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	p, err := begin(t, z, "import os, time\nif os.fork(): print('runs', flush=True)\ntime.sleep(99)", nil)
	must(t, err)
	if _, err := io.ReadAtLeast(p.stdout, make([]byte, 5), 5); err != nil {
		t.Fatal(err)
	}
	must(t, z.Empty(awaittest.Context(t)))
	if _, _, exit := p.finish(t); exit.Status.Signal() != unix.SIGKILL { // finish also waits for the end of the other process
		t.Errorf("%#x", exit.Status)
	}
	if got := run(t, z, "print(1)", nil); got != "1\n" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestTheEndOfTheServerEndsEverything(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(z *Zygote){
		"killed": func(z *Zygote) { must(t, z.process.Kill()) },
		"closed": func(z *Zygote) { must(t, z.Close()) },
	} {
		needNamespaces(t)
		cfg := usual(t.TempDir())
		cfg.Launch = inNamespace
		openToAll(t, cfg.Dir)
		z := start(t, cfg)
		p, err := begin(t, z, "import time\nprint('runs', flush=True)\ntime.sleep(99)", nil)
		must(t, err)
		end(z)
		if exit, err := p.Wait(awaittest.Context(t)); err == nil && exit.Status.Signal() != unix.SIGKILL || err != nil && !errors.Is(err, ErrGone) {
			t.Errorf("%s: %+v %v", name, exit, err)
		}
		<-z.Gone()
		if _, err := z.Next(awaittest.Context(t)); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(p.stdout); err != nil { // the program has it open
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAProgramEntersControlGroups(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	r, w, err := os.Pipe() // in the place of a group's file
	must(t, err)
	defer r.Close()
	got := run(t, z, "print(1)", func(r *Request) { r.Groups = []int{int(w.Fd())} })
	must(t, w.Close())
	if text, err := io.ReadAll(r); string(text) != "0" || err != nil || got != "1\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestManyCopiesLeaveNothing(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	count := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", z.process.(launched).Pid))
		must(t, err)
		return len(all)
	}
	const blocks = "import sys; print(sys.getallocatedblocks())" // each copy has what the server has collected
	memory := func() (n int) {
		_, err := fmt.Sscan(run(t, z, blocks, nil), &n)
		must(t, err)
		return n
	}
	run(t, z, blocks, nil)
	before, beforeMemory := count(), memory()
	for range 20 {
		run(t, z, blocks, nil)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors after %d", after, before)
	}
	if after := memory(); after > beforeMemory+20 {
		t.Errorf("%d blocks of memory after %d", after, beforeMemory)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.slots) != 0 {
		t.Errorf("%d slots", len(z.slots))
	}
}

func TestTheEndOfAProgramIsParsed(t *testing.T) {
	t.Parallel()
	got, err := parseExit([]string{"256", "1500", "2048"})
	if want := (Exit{Status: 256, CPU: 1500 * time.Microsecond, MaxRSS: 2 << 20}); err != nil || got != want {
		t.Errorf("%+v, want %+v, %v", got, want, err)
	}
	for _, words := range [][]string{
		{"", "0", "0"}, {"0", "x", "0"}, {"0", "0", "-"},
		{"4294967296", "0", "0"}, // more than a status has
		{"4991", "0", "0"},       // the process has stopped
	} {
		if got, err := parseExit(words); err == nil {
			t.Errorf("%q is %+v", words, got)
		}
	}
}

func TestAMessageThatCannotBeEndsNoProgram(t *testing.T) {
	t.Parallel()
	s := &Slot{n: 1, ended: make(chan struct{})}
	z := &Zygote{slots: map[int]*Slot{1: s}}
	s.zygote = z
	for _, words := range [][]string{
		{""}, {"empty"}, {"exited", "1"}, {"exited", "1", "x", "0", "0"}, {"exited", "1", "0", "0"}, {"exited", "2", "0", "0", "0"}, {"other", "1", "0"},
	} {
		if err := z.take(words); err == nil || !strings.Contains(err.Error(), "unknown message") {
			t.Errorf("%q: %v", words, err)
		}
	}
	select {
	case <-s.Ended():
		t.Error("the program has ended")
	default:
	}
	must(t, z.take([]string{"exited", "1", "256", "0", "0"}))
	if exit, err := s.Wait(t.Context()); err != nil || exit.Status.ExitStatus() != 1 {
		t.Errorf("%+v, %v", exit, err)
	}
}
