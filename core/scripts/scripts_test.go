package scripts

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(toldtest.Main(os.Args[2:]))
	}
	leaktest.Main(m)
}

// journal is a Sink that remembers.
type journal struct {
	mu     sync.Mutex
	out    map[executor.Stream]string
	begun  chan struct{}
	failed error
}

func newJournal() *journal {
	return &journal{out: map[executor.Stream]string{}, begun: make(chan struct{})}
}

func (j *journal) Emit(e executor.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch b := e.Body.(type) {
	case executor.Started:
		close(j.begun)
	case executor.Output:
		if b.Offset != int64(len(j.out[b.Stream])) {
			j.failed = errors.New("offsets have a gap")
		}
		j.out[b.Stream] += string(b.Data)
	}
	return nil
}

func (j *journal) Artifact(*tar.Header, io.Reader) error { return errors.New("no artifacts") }

type place struct {
	t      *testing.T
	root   string
	logs   string
	policy config.Scripts
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	p := &place{t: t, root: filepath.Join(dir, "root"), logs: filepath.Join(dir, "logs")}
	if err := os.Mkdir(p.root, 0o700); err != nil {
		t.Fatal(err)
	}
	p.policy = config.Default().Scripts
	p.policy.Root, p.policy.LogDir = p.root, p.logs
	p.policy.Args, p.policy.Env = []string{"--port", "--smoke", "--name"}, []string{"GREETING"}
	return p
}

// script writes an allowed script.
func (p *place) script(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it is executed
		p.t.Fatal(err)
	}
	p.policy.Allowed = append(p.policy.Allowed, path)
	return path
}

func (p *place) backend() *Backend {
	p.t.Helper()
	b, err := New(Options{Policy: p.policy, WorkDir: p.t.TempDir(), Runner: func() (string, []string, error) {
		return "/proc/self/exe", []string{os.Args[0], "runner"}, nil
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			p.t.Errorf("close: %v", err)
		}
	})
	return b
}

var ids atomic.Int64

func job(path string, args ...string) executor.Job {
	return executor.Job{
		ID: "exe_" + strconv.FormatInt(ids.Add(1), 10), Owner: "me", Spec: executor.Spec{Script: path, Args: args},
		Limits: executor.Limits{Timeout: 5 * time.Minute, KillGrace: 100 * time.Millisecond},
	}
}

func TestAScriptRunsInItsOwnFolderWithItsArguments(t *testing.T) {
	p := newPlace(t)
	path := p.script("hello.sh", `pwd; echo "$@"; echo "$GREETING"; echo "secret: $SCRIPTS_TEST_SECRET"; echo wrong >&2; exit 3`)
	t.Setenv("SCRIPTS_TEST_SECRET", "leaked")
	b := p.backend()
	j := job(path, "--port", "8080.0", "--smoke", "--name=a b")
	j.Spec.Env = map[string]string{"GREETING": "hi"}
	sink := newJournal()
	res, err := b.Run(t.Context(), j, sink)
	if err != nil || res.ExitCode == nil || *res.ExitCode != 3 || res.Status != executor.StatusFailed {
		t.Fatalf("a script that exits with 3 ended as %+v, error %v", res, err)
	}
	if want := p.root + "\n--port 8080 --smoke --name=a b\nhi\nsecret: \n"; sink.out[executor.Stdout] != want {
		t.Errorf("stdout is %q, want %q", sink.out[executor.Stdout], want)
	}
	if sink.out[executor.Stderr] != "wrong\n" {
		t.Errorf("stderr is %q", sink.out[executor.Stderr])
	}
	log, err := os.ReadFile(res.LogPath)
	if err != nil || !strings.Contains(string(log), "--- stderr ---\nwrong\n") {
		t.Errorf("its log %s is %q, %v", res.LogPath, log, err)
	}
	lines := p.audit()
	if len(lines) != 1 || lines[0].Path != path || lines[0].Requester != "me" || *lines[0].ExitCode != 3 || lines[0].LogPath != res.LogPath {
		t.Errorf("the audit log is %+v, want one line with path, requester, exit code and log", lines)
	}
}

func (p *place) audit() []auditLine {
	p.t.Helper()
	f, err := os.Open(filepath.Join(p.logs, auditName))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	var list []auditLine
	for s := bufio.NewScanner(f); s.Scan(); {
		var line auditLine
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			p.t.Fatal(err)
		}
		list = append(list, line)
	}
	return list
}

func TestWhatThePolicyDoesNotAllowIsNamed(t *testing.T) {
	p := newPlace(t)
	path := p.script("ok.sh", "true")
	outside := filepath.Join(t.TempDir(), "outside.sh")
	if err := os.WriteFile(outside, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	link := filepath.Join(p.root, "link.sh")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	p.policy.Allowed = append(p.policy.Allowed, link, p.root, filepath.Join(p.root, "missing.sh"))
	other := filepath.Join(p.root, "other.sh")
	if err := os.WriteFile(other, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	b := p.backend()
	for name, test := range map[string]struct {
		do    func(*executor.Job)
		code  executor.Code
		field string
	}{
		"a script that is not listed":    {func(j *executor.Job) { j.Spec.Script = other }, executor.Denied, "script"},
		"a path that is not absolute":    {func(j *executor.Job) { j.Spec.Script = "ok.sh" }, executor.Denied, "script"},
		"a path around a folder":         {func(j *executor.Job) { j.Spec.Script = p.root + "/x/../other.sh" }, executor.Denied, "script"},
		"a link out of the root":         {func(j *executor.Job) { j.Spec.Script = link }, executor.Invalid, "script"},
		"a folder":                       {func(j *executor.Job) { j.Spec.Script = p.root }, executor.Invalid, "script"},
		"a script that is not there":     {func(j *executor.Job) { j.Spec.Script = p.root + "/missing.sh" }, executor.Invalid, "script"},
		"a flag that is not listed":      {func(j *executor.Job) { j.Spec.Args = []string{"--rm"} }, executor.Invalid, "args[0]"},
		"a value without a flag":         {func(j *executor.Job) { j.Spec.Args = []string{"8080"} }, executor.Invalid, "args[0]"},
		"two values of one flag":         {func(j *executor.Job) { j.Spec.Args = []string{"--name", "a", "b"} }, executor.Invalid, "args[2]"},
		"a port that is no number":       {func(j *executor.Job) { j.Spec.Args = []string{"--port", "x"} }, executor.Invalid, "args[1]"},
		"a port that is none":            {func(j *executor.Job) { j.Spec.Args = []string{"--port=70000"} }, executor.Invalid, "args[0]"},
		"a value of two lines":           {func(j *executor.Job) { j.Spec.Args = []string{"--name", "a\nb"} }, executor.Invalid, "args[1]"},
		"a variable that is not listed":  {func(j *executor.Job) { j.Spec.Env = map[string]string{"LD_PRELOAD": "x"} }, executor.Invalid, "env.LD_PRELOAD"},
		"code beside it":                 {func(j *executor.Job) { j.Spec.Code = "x" }, executor.Unimplemented, "code"},
		"a limit that nobody enforces":   {func(j *executor.Job) { j.Spec.Limits.MemoryBytes = 1 }, executor.Unimplemented, "config.memory_mb"},
		"a network that cannot be taken": {func(j *executor.Job) { j.Spec.Network = executor.NetworkOff }, executor.Unimplemented, "config.network_disabled"},
		"no script":                      {func(j *executor.Job) { j.Spec.Script = "" }, executor.Unimplemented, "script"},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(path)
			test.do(&j)
			_, err := b.Run(t.Context(), j, newJournal())
			e, ok := errors.AsType[*executor.Error](err)
			if !ok || e.Code != test.code || len(e.Fields) != 1 || e.Fields[0].Field != test.field {
				t.Errorf("got %v, want %s about %s", err, test.code, test.field)
			}
			lines := p.audit()
			last := lines[len(lines)-1]
			if last.ExecutionID != j.ID || last.Path != j.Spec.Script || !slices.Equal(last.Args, j.Spec.Args) || last.Result != string(test.code) || last.ExitCode != nil {
				t.Errorf("audit of what was refused: %+v", last)
			}
		})
	}
	empty, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if _, err := empty.Run(t.Context(), job(path), newJournal()); executor.CodeOf(err) != executor.Denied {
		t.Errorf("an empty list allows: %v", err)
	}
}

func TestATimeoutKillsAllThatTheScriptStarted(t *testing.T) {
	p := newPlace(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	path := p.script("slow.sh", `(setsid sh -c 'echo $$ > `+pidFile+`.part; mv `+pidFile+`.part `+pidFile+`; trap "" TERM; while :; do sleep 1; done' &) ; while ! [ -f `+pidFile+` ]; do :; done; sleep 600`)
	var raw []byte
	for p.policy.TimeoutMS = 300; len(raw) == 0; p.policy.TimeoutMS *= 10 { // on a busy machine it starts nothing in so short a time
		res, err := p.backend().Run(t.Context(), job(path), newJournal())
		if err != nil || res.Status != executor.StatusTimedOut {
			t.Fatalf("a script beyond its time ended as %+v, error %v, want timed_out", res, err)
		}
		lines := p.audit()
		if last := lines[len(lines)-1]; last.ExitCode == nil || *last.ExitCode >= 0 || last.Result != "timed_out" {
			t.Errorf("the audit of a killed script is %+v, want a negative exit code", last)
		}
		if raw, err = os.ReadFile(pidFile); err != nil && p.policy.TimeoutMS > 10_000 {
			t.Fatal("the script has started nothing")
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d of the script is alive", pid)
	}
}

func TestACancelledScriptIsKilledAndALaterRemoveHarmless(t *testing.T) {
	p := newPlace(t)
	path := p.script("slow.sh", "sleep 600")
	b := p.backend()
	for name, stop := range map[string]func(context.CancelCauseFunc, string){
		"cancel": func(cancel context.CancelCauseFunc, _ string) { cancel(errors.New("enough")) },
		"remove": func(_ context.CancelCauseFunc, id string) {
			if err := b.Remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		sink, j := newJournal(), job(path)
		type end struct {
			res executor.Result
			err error
		}
		done := make(chan end, 1)
		go func() {
			res, err := b.Run(ctx, j, sink)
			done <- end{res, err}
		}()
		<-sink.begun
		stop(cancel, j.ID)
		got := <-done
		if got.err != nil || got.res.Status != executor.StatusKilled {
			t.Errorf("%s: the script ended as %+v, error %v, want killed", name, got.res, got.err)
		}
		if err := b.Remove(t.Context(), j.ID); err != nil {
			t.Errorf("%s: remove: %v", name, err)
		}
		cancel(nil)
	}
}

func TestLongLinesAndLongOutputAreCutAndSaidSo(t *testing.T) {
	p := newPlace(t)
	p.policy.MaxLineBytes, p.policy.MaxOutputBytes = 10, 100_000
	path := p.script("long.sh", `i=0; while [ $i -lt 100 ]; do printf x; i=$((i+1)); done; echo; echo short; head -c 300000 /dev/zero | tr '\0' '\n' >&2`)
	sink := newJournal()
	res, err := p.backend().Run(t.Context(), job(path), sink)
	if err != nil || sink.failed != nil {
		t.Fatalf("error %v, and of the sink: %v", err, sink.failed)
	}
	if sink.out[executor.Stdout] != "xxxxxxxxxx\nshort\n" || !res.StdoutTruncated {
		t.Errorf("stdout is %q, truncated %t", sink.out[executor.Stdout], res.StdoutTruncated)
	}
	if len(sink.out[executor.Stderr]) != 100_000 || !res.StderrTruncated || res.StderrBytes != 300_000 {
		t.Errorf("stderr has %d bytes of %d, truncated %t", len(sink.out[executor.Stderr]), res.StderrBytes, res.StderrTruncated)
	}
}

func TestTheAuditLogIsRotatedAndRunLogsAreBounded(t *testing.T) {
	dir := t.TempDir()
	a, err := openAudit(dir)
	if err != nil {
		t.Fatal(err)
	}
	line := auditLine{Path: strings.Repeat("p", 1<<20), Args: []string{}}
	for range 80 {
		if err := a.write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, auditName+"*"))
	if err != nil || len(files) != 1+keptAudits {
		t.Errorf("%d files: %v, %v", len(files), files, err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Size() > maxAuditBytes+1<<20 {
			t.Errorf("%s has %d bytes, %v", f, st.Size(), err)
		}
	}
	if err := a.write(line); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed log takes a line: %v", err)
	}
}

func TestInfoPromisesScriptsAndNothingElse(t *testing.T) {
	p := newPlace(t)
	path := p.script("a.sh", "true")
	b := p.backend()
	info, err := b.Info(t.Context())
	if err != nil || !info.Healthy || !info.Capabilities.Scripts || info.Capabilities.Commands || info.Capabilities.Memory {
		t.Errorf("Info promises more or less than scripts: %+v, error %v", info, err)
	}
	list, err := b.Scripts(t.Context())
	if err != nil || len(list) != 1 || list[0].Path != path || len(list[0].AllowedArgs) != 3 {
		t.Errorf("Scripts lists %+v, error %v, want %s with three arguments", list, err, path)
	}
	if _, err := b.Attach(t.Context(), job(path), executor.Resume{}, newJournal()); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("Attach: error %v, want unimplemented", err)
	}
}

func TestAnInputThatCannotBeOpenedLeavesNoFile(t *testing.T) {
	p := newPlace(t)
	j := job(p.script("hello.sh", "echo hi"))
	b := p.backend()
	broken := errors.New("it is gone")
	j.Stdin = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return nil, broken }}
	if _, err := b.Run(t.Context(), j, newJournal()); !errors.Is(err, broken) {
		t.Errorf("Run: error %v, want that of the input", err)
	}
	if left, err := filepath.Glob(filepath.Join(p.logs, runPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("a run that did not begin leaves the files %v, error %v", left, err)
	}
}

func TestPositionalArgumentsAreThoseOfThePolicyAndComeLast(t *testing.T) {
	t.Parallel()
	flags := []string{"--port", "--smoke"}
	for _, c := range []struct {
		allowed, args, want []string // a nil want: refused
	}{
		{nil, []string{"start"}, nil},
		{[]string{"start"}, []string{"start"}, []string{"start"}},
		{[]string{"start"}, []string{"stop"}, nil},
		{[]string{"start"}, []string{"start", "--smoke"}, []string{"--smoke", "--", "start"}},
		{[]string{"start"}, []string{"--port", "8080.0", "start"}, []string{"--port", "8080", "--", "start"}},
		{[]string{"start"}, []string{"--smoke", "start"}, []string{"--smoke", "start"}}, // the value of the flag
		{[]string{"start"}, []string{"--smoke", "--", "start"}, []string{"--smoke", "--", "start"}},
		{[]string{"start"}, []string{"--", "start"}, []string{"--", "start"}},
		{[]string{"*"}, []string{"a b", "c"}, []string{"a b", "c"}},
		{[]string{"*"}, []string{"--", "--rm"}, nil},
		{[]string{"*"}, []string{"-x"}, nil},
		{[]string{"*"}, []string{"a\nb"}, nil},
		{nil, []string{"--"}, []string{"--"}},
	} {
		p := policy{config.Scripts{Args: append(slices.Clone(flags), c.allowed...)}}
		got, err := p.arguments(c.args)
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q, where %q is allowed: %q, %v, want %q", c.args, c.allowed, got, err, c.want)
		}
	}
}

func TestARequestWithoutArgumentsGetsTheDefault(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.policy.DefaultArgs = []string{"--port", "7000.0"}
	path := p.script("hello.sh", `echo "$@"`)
	b := p.backend()
	for want, args := range map[string][]string{"--port 7000\n": nil, "--smoke\n": {"--smoke"}} {
		sink := newJournal()
		if _, err := b.Run(t.Context(), job(path, args...), sink); err != nil || sink.out[executor.Stdout] != want {
			t.Errorf("a request with %q: %q, %v, want %q", args, sink.out[executor.Stdout], err, want)
		}
	}
	list, err := b.Scripts(executor.WithPrincipal(t.Context(), executor.Principal{Owner: "me"}))
	if err != nil || !slices.Equal(list[0].DefaultArgs, p.policy.DefaultArgs) {
		t.Errorf("listed is %+v, %v", list, err)
	}
	lines := p.audit()
	if last := lines[len(lines)-1]; last.Tool != "list_allowed" || last.Requester != "me" || last.Result != "succeeded" || last.TS == "" || last.Args == nil {
		t.Errorf("the audit of the list is %+v", last)
	}
	p.policy.DefaultArgs = []string{"--rm"}
	if _, err := New(Options{Policy: p.policy}); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "scripts.default_args") {
		t.Errorf("default arguments that are not allowed: %v", err)
	}
}
