package uvbackend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// asked returns a Session as the Engine passes it to OpenSession.
func asked(id string, spec executor.Spec) executor.Session {
	return executor.Session{ID: id, Owner: "test", Language: spec.Language, Spec: spec, Limits: job(spec).Limits}
}

// open opens a session. The session is closed when t ends.
func open(t testing.TB, b *Backend, id string, spec executor.Spec) executor.OpenedSession {
	t.Helper()
	opened, err := b.OpenSession(t.Context(), asked(id, spec))
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// cell runs code in a session and returns its output, its value and its Result.
func cell(t testing.TB, b *Backend, id, code string) (stdout, value string, result executor.Result) {
	t.Helper()
	result, j := run(t, b, executor.Spec{Session: id, Code: code})
	for _, e := range j.events {
		if d, ok := e.Body.(executor.Display); ok && d.Value {
			value = string(d.Data["text/plain"])
		}
	}
	if result.Status != executor.StatusSucceeded {
		t.Logf("%s: %s, stderr %s", code, result.Status, j.text(executor.Stderr))
	}
	return j.text(executor.Stdout), value, result
}

func TestSessionsKeepTheirOwnState(t *testing.T) {
	b := openBackend(t, nil)
	opened := open(t, b, "ctx-1", executor.Spec{})
	open(t, b, "ctx-2", executor.Spec{})
	if opened.PythonVersion == "" {
		t.Errorf("%+v", opened)
	}
	cell(t, b, "ctx-1", "x = 1")
	cell(t, b, "ctx-2", "x = 2")
	for id, want := range map[string]string{"ctx-1": "1", "ctx-2": "2"} {
		if _, got, result := cell(t, b, id, "x"); got != want || result.PythonVersion != opened.PythonVersion {
			t.Errorf("%s: %q %+v", id, got, result)
		}
	}
	if _, err := b.OpenSession(t.Context(), asked("ctx-1", executor.Spec{})); executor.CodeOf(err) != executor.Conflict {
		t.Error(err)
	}
	for range 2 {
		if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Run(t.Context(), job(executor.Spec{Session: "ctx-1", Code: "x"}), &journal{}); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if _, err := b.AdoptSession(t.Context(), asked("ctx-1", executor.Spec{}), nil); executor.CodeOf(err) != executor.Unimplemented {
		t.Error(err)
	}
}

func TestAClosedSessionsSlotServesAgainAndHasNothingOfIt(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	open(t, b, "ctx-1", executor.Spec{})
	// In a box a program has another number than here, so its argument tells it apart.
	seconds := strconv.Itoa(1_000_000 + os.Getpid())
	sleeping := func() []int {
		return leftovertest.Processes("cmdline", func(c string) bool { return strings.Contains(c, "sleep\x00"+seconds) })
	}
	cell(t, b, "ctx-1", "import os, subprocess\nopen('file', 'w').close()\np = subprocess.Popen(['sleep', '"+seconds+"'], start_new_session=True)")
	if len(sleeping()) == 0 {
		t.Error("the process that is looked for does not run")
	}
	if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Fatal(err)
	}
	if pids := sleeping(); len(pids) > 0 {
		t.Errorf("the processes %v are alive", pids)
	}
	if left := lastingLeftovers(b.config.WorkDir); len(left) > 0 {
		t.Error(left)
	}
	for range 4 {
		if out, _ := succeeds(t, b, executor.Spec{Code: "import os; print(os.listdir())"}); out != "['main.py']\n" {
			t.Error(out)
		}
	}
}

func TestACallIntoAClosedSessionDoesNotArriveInTheNextOne(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	open(t, b, "ctx-1", executor.Spec{})
	late, done, err := b.use(t.Context(), "ctx-1") // a call that has its session and has not reached the runner yet
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Fatal(err)
	}
	others := []string{"ctx-2", "ctx-3", "ctx-4", "ctx-5"} // more sessions than idle slots
	for _, id := range others {
		open(t, b, id, executor.Spec{})
	}
	if _, err := late.slot.conn.WriteFile(t.Context(), executor.File{Path: "theirs", SizeBytes: 1}, strings.NewReader("x")); err == nil {
		t.Error("a call of a closed session succeeded")
	}
	for _, id := range others {
		if list, err := b.ListFiles(t.Context(), id, "", false); err != nil || len(list) > 0 {
			t.Error("the call wrote to the next session", list, err)
		}
	}
	done()
	if _, _, err := b.use(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if err := late.enter(); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	// Without a late call the slot serves another session.
	s, err := b.session(t.Context(), "ctx-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CloseSession(t.Context(), "ctx-2"); err != nil || !s.slot.alive() {
		t.Error("the runner was ended", err)
	}
}

func TestRequirementsCanBeAddedToASession(t *testing.T) {
	needUV(t)
	index := newWheelhouse(t)
	index.probe()
	b := openBackend(t, map[string]any{"index_url": index.url()})
	open(t, b, "ctx-1", executor.Spec{})
	cell(t, b, "ctx-1", "kept = 1")
	for range 2 {
		packages, err := b.AddRequirements(t.Context(), "ctx-1", "pyexec-probe<2")
		if err != nil || !slices.Contains(packages, "pyexec-probe==1.2.3") {
			t.Fatal(packages, err)
		}
	}
	if s, err := b.session(t.Context(), "ctx-1"); err != nil || len(s.environments) != 1 {
		t.Errorf("the same requirements came twice: %d environments, %v", len(s.environments), err)
	}
	// A warm interpreter would keep its environment in use.
	open(t, b, "ctx-2", executor.Spec{Requirements: "pyexec-probe<2"})
	if ready := warmOnes(b); len(ready) != 1 {
		t.Errorf("interpreters are ready for %d kinds of sessions, want only the one without requirements", len(ready))
	}
	if _, got, _ := cell(t, b, "ctx-1", "import pyexec_probe; kept"); got != "1" {
		t.Error(got)
	}
	if result, j := run(t, b, executor.Spec{Session: "ctx-1", Command: []string{"python", "-c", "import pyexec_probe; print('ok')"}}); j.text(executor.Stdout) != "ok\n" {
		t.Errorf("%+v %s", result, j.text(executor.Stderr))
	}
	if _, err := b.AddRequirements(t.Context(), "ctx-1", "no-such-package-anywhere"); executor.CodeOf(err) != executor.Invalid {
		t.Error(err)
	}
	if err := b.RestartSession(t.Context(), "ctx-1", false); err != nil {
		t.Fatal(err)
	}
	if _, got, _ := cell(t, b, "ctx-1", "import pyexec_probe; 'again'"); got != "'again'" {
		t.Error(got)
	}
}

func TestASessionWithRequirementsThatCannotBeHadIsRefused(t *testing.T) {
	needUV(t)
	b := openBackend(t, map[string]any{"index_url": newWheelhouse(t).url()})
	_, err := b.OpenSession(t.Context(), asked("ctx-1", executor.Spec{Requirements: "no-such-package-anywhere"}))
	if executor.CodeOf(err) != executor.Invalid {
		t.Error(err)
	}
	if n := b.sessions.Len(); n != 0 {
		t.Error(n)
	}
	open(t, b, "ctx-1", executor.Spec{}) // its id is free again
}

func TestASessionWhoseRunnerDiesIsNotHeldAnyMore(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	open(t, b, "ctx-1", executor.Spec{})
	s, err := b.session(t.Context(), "ctx-1")
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{on: func(e executor.Event) error {
		if e.Body.Kind() == executor.KindStarted {
			return s.slot.cmd.Process.Signal(syscall.SIGKILL)
		}
		return nil
	}}
	if _, err := b.Run(t.Context(), job(executor.Spec{Session: "ctx-1", Code: "while True: pass"}), j); executor.CodeOf(err) != executor.Unavailable {
		t.Error(err)
	}
	if _, err := b.ListFiles(t.Context(), "ctx-1", "", false); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if left := lastingLeftovers(b.config.WorkDir); len(left) > 0 {
		t.Error(left)
	}
}

func TestOtherLanguagesAreWhatTheMachineHas(t *testing.T) {
	b := openBackend(t, nil)
	info, err := b.Info(t.Context())
	if err != nil || !info.Capabilities.Sessions {
		t.Fatal(info.Capabilities, err)
	}
	for _, language := range []executor.Language{executor.LanguageJavaScript, executor.LanguageShell, "cobol"} {
		_, err := b.OpenSession(t.Context(), asked("ctx-1", executor.Spec{Language: language}))
		has := slices.Contains(info.Capabilities.Languages, language)
		if has != (err == nil) || !has && executor.CodeOf(err) != executor.Unimplemented {
			t.Errorf("%s: %v, %v", language, has, err)
		}
		if has {
			if list, err := b.AddRequirements(t.Context(), "ctx-1", "no-such-package-anywhere"); executor.CodeOf(err) != executor.Unimplemented {
				t.Errorf("%s: requirements were added: %q, %v", language, list, err)
			}
			if _, j := run(t, b, executor.Spec{Session: "ctx-1", Code: "1"}); j.started() == nil || j.started().PythonVersion != "" {
				t.Errorf("%s: started %+v", language, j.started())
			}
		}
		if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
			t.Error(err)
		}
	}
}

func TestAnInterpreterOutOfReachIsNone(t *testing.T) {
	dir := folder(t)
	script(t, filepath.Join(dir, "bin", "node"), "#!/bin/sh\n")
	m := mechanisms{Setuid: true, uids: uids{first: 60600, last: 60600}}
	if got := reachable(filepath.Join(dir, "bin", "node"), m); !strings.HasSuffix(got, "/bin/node") {
		t.Errorf("%q", got)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := reachable(filepath.Join(dir, "bin", "node"), m); got != "" {
		t.Errorf("%q", got)
	}
}

// warmOnes returns the warm slots by kind. The kind asked for last comes last. It waits until all interpreters have started.
func warmOnes(b *Backend) [][]*slot {
	b.wg.Wait()
	b.warm.mu.Lock()
	defer b.warm.mu.Unlock()
	list := make([][]*slot, 0, len(b.warm.kinds))
	for _, k := range b.warm.kinds {
		list = append(list, slices.Clone(k.ready))
	}
	return list
}

func TestAnInterpreterIsReadyForASessionLikeTheLast(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": 1})
	open(t, b, "ctx-1", executor.Spec{})
	warm := func() *slot {
		ready := warmOnes(b)
		if len(ready) != 1 || len(ready[0]) != 1 {
			t.Fatalf("%v are ready", ready)
		}
		return ready[0][0]
	}
	ready := warm()
	open(t, b, "ctx-2", executor.Spec{})
	if s, err := b.session(t.Context(), "ctx-2"); err != nil || s.slot != ready {
		t.Error("the warm interpreter was not taken", err)
	}
	for _, id := range []string{"ctx-1", "ctx-2"} { // one was opened in a slot, the other found an interpreter
		if s, err := b.session(t.Context(), id); err != nil || s.slot.shares != 1024 {
			t.Errorf("the slot of %s has a CPU weight of %d shares, want the 1024 of the session, %v", id, s.slot.shares, err)
		}
	}
	if _, value, _ := cell(t, b, "ctx-2", "1 + 1"); value != "2" {
		t.Error(value)
	}
	// Another kind of session does not get a warm interpreter, and no session gets a dead one.
	ready = warm()
	open(t, b, "ctx-3", executor.Spec{Env: map[string]string{"A": "b"}})
	if s, err := b.session(t.Context(), "ctx-3"); err != nil || s.slot == ready {
		t.Error("an interpreter of another kind was taken", err)
	}
	ready = warm()
	if err := ready.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ready.exited
	open(t, b, "ctx-4", executor.Spec{Env: map[string]string{"A": "b"}})
	if _, value, _ := cell(t, b, "ctx-4", "__import__('os').environ['A']"); value != "'b'" {
		t.Error(value)
	}
}

// TestKindsOfSessionsShareWhatIsReady shows that two kinds of sessions that take turns both find a warm interpreter.
func TestKindsOfSessionsShareWhatIsReady(t *testing.T) {
	b := openBackend(t, nil)
	kinds := 0
	ask := func(kind string, warm bool, want ...int) {
		t.Helper()
		kinds++
		id := fmt.Sprintf("ctx-%d", kinds)
		before := warmOnes(b)
		open(t, b, id, executor.Spec{Env: map[string]string{"KIND": kind}})
		s, err := b.session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if was := slices.ContainsFunc(before, func(ready []*slot) bool { return slices.Contains(ready, s.slot) }); was != warm {
			t.Errorf("%s: got a warm interpreter: %v, want %v", kind, was, warm)
		}
		if _, value, _ := cell(t, b, id, "__import__('os').environ['KIND']"); value != "'"+kind+"'" {
			t.Errorf("%s: got %s", kind, value)
		}
		var got []int
		for _, ready := range warmOnes(b) {
			got = append(got, len(ready))
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s %v interpreters are warm, want %v", kind, got, want)
		}
		if err := b.CloseSession(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	ask("a", false, 3)
	ask("a", true, 3)
	ask("b", false, 2, 1)
	ask("a", true, 1, 2)
	ask("b", true, 2, 1)
	ask("c", false, 1, 1, 1)
	ask("d", false, 1, 1, 1) // replaces a
	ask("b", true, 1, 1, 1)
	ask("a", false, 1, 1, 1) // replaces c
	ask("c", false, 1, 1, 1)
}

// TestWhatIsReadyGivesWay shows that warm interpreters give up their uids for sessions, and for builds.
func TestWhatIsReadyGivesWay(t *testing.T) {
	needtest.NeedRoot(t)
	b := openBackend(t, map[string]any{"run_as": "61200-61203"})
	open(t, b, "ctx-1", executor.Spec{})
	warmOnes(b)
	builder, err := b.takeBuilder(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !b.slots.dropBuilder(builder) {
		t.Error("a build slot was not given back")
	}
	for n := 2; n <= 4; n++ {
		warmOnes(b)
		open(t, b, fmt.Sprintf("ctx-%d", n), executor.Spec{Env: map[string]string{"KIND": strconv.Itoa(n)}})
	}
	if s, err := b.OpenSession(t.Context(), asked("ctx-5", executor.Spec{})); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("a fifth session: %+v, %v", s, err)
	}
}

// BenchmarkCell measures a cell in an open session.
func BenchmarkCell(b *testing.B) {
	be := openBackend(b, nil)
	open(b, be, "ctx-1", executor.Spec{})
	spec := executor.Spec{Session: "ctx-1", Code: "x = 1"}
	sink := &journal{}
	for b.Loop() {
		if r, err := be.Run(b.Context(), job(spec), sink); err != nil || r.Status != executor.StatusSucceeded {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkOpen measures the opening of a session with the runners ready.
func BenchmarkOpen(b *testing.B) {
	be := openBackend(b, nil)
	for b.Loop() {
		if _, err := be.OpenSession(b.Context(), asked("ctx-1", executor.Spec{})); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := be.CloseSession(b.Context(), "ctx-1"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
