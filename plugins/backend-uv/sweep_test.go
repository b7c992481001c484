package uvbackend

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// outsider starts a process under uid that belongs to no installation. The process ends when t ends.
func outsider(t *testing.T, uid int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir, cmd.Env = "/", []string{"HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}} //nolint:gosec // a uid
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is the signal
	})
	return cmd
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestAProcessThatIsNotOursSurvivesAndItsUIDIsLeftOut has such a process at the start of the backend, when slots are taken, when a
// slot is given back, and when the backend is closed.
func TestAProcessThatIsNotOursSurvivesAndItsUIDIsLeftOut(t *testing.T) {
	needtest.NeedRoot(t)
	const runAs = "61280-61289"
	r := uids{61280, 61289}
	locks, err := uidFolder(Config{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := claimUID(locks, r)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as if the holder had died
	atStart := outsider(t, dead.uid)
	log := &logLines{}
	b, err := newBackend(t.Context(), plugin.Configure{
		Name: "uv", Instance: t.Name(), Log: slog.New(slog.NewTextHandler(log, nil)), Options: section(t, map[string]any{"run_as": runAs, "warm_sessions": -1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = b.Close()
		}
	}()
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	awaittest.Until(t, "the start of the kept slots", func() bool { all, busy := b.slots.counts(); return all > 0 && busy == 0 })

	made := func(n int) *slot {
		t.Helper()
		s, err := b.slots.newSlot(t.Context(), n, slotKind{}, b.slots.programUID)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := made(1000)
	underSlot := outsider(t, s.uid.uid)
	s.give()
	free := made(1001)
	free.give()
	unclaimed := outsider(t, free.uid.uid)
	for range 2 {
		again := made(1002)
		if n := again.uid.uid; n == dead.uid || n == s.uid.uid || n == free.uid.uid {
			t.Errorf("uid %d was claimed, under which another process runs", n)
		}
		again.give()
	}
	closed = true
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for uid, cmd := range map[int]*exec.Cmd{dead.uid: atStart, s.uid.uid: underSlot, free.uid.uid: unclaimed} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the process of uid %d was ended: %v", uid, err)
		}
		want := "uid " + strconv.Itoa(uid) + " has processes that are not ours: [" + strconv.Itoa(cmd.Process.Pid) + "]"
		if !strings.Contains(log.text(), want) {
			t.Errorf("not logged: %s\n%s", want, log.text())
		}
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
	pool := newUIDPool(locks, r, sandbox.Marks{}, slog.New(slog.DiscardHandler))
	pool.sweep() // the uids are free again
	c, err := pool.take(uids{dead.uid, dead.uid})
	if err != nil {
		t.Fatal(err)
	}
	c.release()
}

// TestWhatHidesFromTheEndOfItsPluginAndRunnerIsEndedByTheNextStart has a process in a session of its own, in the root folder, with
// an empty environment. Plugin and runner are killed before they can end the process.
func TestWhatHidesFromTheEndOfItsPluginAndRunnerIsEndedByTheNextStart(t *testing.T) {
	cache := filepath.Join(folder(t), "cache")
	// The uids are not the default ones, because another server on this machine ends leftovers under those.
	options, err := json.Marshal(map[string]any{"cache_dir": cache, "warm_sessions": -1, "run_as": "61320-61327"})
	if err != nil {
		t.Fatal(err)
	}
	p := plugintest.Process(t, "uv", options)
	hidden := "uvbackend-hidden-" + strconv.Itoa(os.Getpid())
	ran, ended := lasting(t, p.Backend, hidden)
	<-ran
	killWithRunners(t, p, cache)
	<-ended
	if how := findMechanisms(Default(), filepath.Join(cache, "mechanisms.json")); how.Box {
		awaittest.Until(t, "the end of the hidden process with its box", func() bool { return len(processes(hidden)) == 0 })
	} else {
		awaittest.Until(t, "the survival of the hidden process, which the test needs,", func() bool { return len(processes(hidden)) == 1 })
	}
	next, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: "next", Options: options})
	if err != nil {
		t.Fatal(err)
	}
	if left := processes(hidden); len(left) != 0 {
		t.Errorf("after the next start %v are alive", left)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// killWithRunners kills a plugin and its runners. None of them gets the time to clear up.
func killWithRunners(t *testing.T, p *plugintest.Plugin, cache string) {
	t.Helper()
	claims, err := os.ReadDir(filepath.Join(cache, "work"))
	if err != nil {
		t.Fatal(err)
	}
	var runners []int
	for _, c := range claims {
		if c.IsDir() {
			runners = append(runners, processes(claimVariable+filepath.Join(cache, "work", c.Name()))...)
		}
	}
	if len(runners) == 0 {
		t.Error("no runner was found, so the test shows nothing")
	}
	// Only the plugin is stopped. The kernel continues stopped processes when their parent dies.
	plugintest.Freeze(t, p.PID)
	for _, pid := range runners {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.Kill()
}

// isStopped reports whether every thread of a process is stopped.
func TestNamesOfOurControlGroups(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		groupName("0123abcd-4200450308"): true, "python-executor-0123abcd-": false, "python-executor-http.service": false,
		"python-executor-0123abcde-1": false, "python-executor-x123abcd-1": false, "0123abcd-1": false, "python-executor-": false, "": false,
	} {
		if isGroupName(name) != want {
			t.Errorf("%q: want %t", name, want)
		}
	}
}
