//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
)

// sessionRunner is a runner with a session open.
type sessionRunner struct {
	*testRunner
}

func pythonSession() SessionStart {
	return SessionStart{SessionID: "ctx-test", Interpreter: []string{"/usr/bin/python3"}, Path: "/usr/bin:/bin", Limits: limits()}
}

// openSession starts a runner and opens a session in it; the test's end closes it.
func openSession(tb testing.TB, start SessionStart) *sessionRunner {
	tb.Helper()
	return openSessionWith(tb, testConfig(tb), start)
}

func openSessionWith(tb testing.TB, cfg Config, start SessionStart) *sessionRunner {
	tb.Helper()
	r := startRunner(tb, cfg)
	if err := r.OpenSession(context.Background(), start); err != nil {
		tb.Fatalf("open: %v\n%s", err, r.stderr)
	}
	tb.Cleanup(func() {
		if err := r.CloseSession(context.Background()); err != nil && executor.CodeOf(err) != executor.Unavailable {
			tb.Error(err)
		}
	})
	return &sessionRunner{r}
}

func cellOf(code string) Start {
	return Start{ExecutionID: "exe_cell", Session: true, Code: code, Limits: limits()}
}

func beside(script string) Start {
	return Start{ExecutionID: "exe_beside", Session: true, Command: []string{"/bin/sh", "-c", script}, Limits: limits()}
}

// cell runs code and fails the test if we failed.
func (r *sessionRunner) cell(tb testing.TB, code string) (executor.Result, *record) {
	tb.Helper()
	return r.run(tb, cellOf(code), RunInput{})
}

// wants runs code and compares its standard output and its value.
func (r *sessionRunner) wants(tb testing.TB, code, stdout, value string) {
	tb.Helper()
	res, rec := r.cell(tb, code)
	if got := rec.value(); describe(res) != "succeeded exit 0" || rec.stdout() != stdout || got != value {
		tb.Errorf("%s\n%s, stdout %q, value %q, stderr %q", code, describe(res), rec.stdout(), got, rec.stderr())
	}
}

// value is the text form of the last value that was displayed.
func (r *record) value() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.displays) - 1; i >= 0; i-- {
		if r.displays[i].Value {
			return string(r.displays[i].Data["text/plain"])
		}
	}
	return ""
}

func TestWhatACellLeavesIsThereForTheNext(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "x = 100", "", "")
	r.wants(t, "x + 1", "", "101")
	r.wants(t, "print('hello'); x", "hello\n", "100")
	r.wants(t, "import asyncio\nawait asyncio.sleep(0, 'async')", "", "'async'")
}

func TestAnErrorIsShownWithTheUsersLinesOnly(t *testing.T) {
	r := openSession(t, pythonSession())
	res, rec := r.cell(t, "def f():\n    raise ValueError('bad')\nf()\n")
	want := "Traceback (most recent call last):\n  File \"<cell 1>\", line 3, in <module>\n    f()\n  File \"<cell 1>\", line 2, in f\n    raise ValueError('bad')\nValueError: bad\n"
	if describe(res) != "failed exit 1" || rec.stderr() != want {
		t.Errorf("%s %q", describe(res), rec.stderr())
	}
	res, _ = r.cell(t, "import sys; sys.exit(7)")
	if describe(res) != "failed exit 7" || res.SessionState != executor.SessionStateKept {
		t.Errorf("%s %q", describe(res), res.SessionState)
	}
	r.wants(t, "f.__name__", "", "'f'")
}

// Python 3.11 and newer mark the part of the line. A form feed or U+2028 in a string ends no line.
func TestAnErrorIsMarkedInItsLine(t *testing.T) {
	r := openSession(t, pythonSession())
	if res, _ := r.cell(t, "import sys; sys.exit(sys.version_info < (3, 11))"); *res.ExitCode != 0 {
		t.Skip("this Python has no marks")
	}
	for _, code := range []string{"1/0", "1/0\n", "x = '\u2028\f'\n1/0", "x = 1\r\n1/0", "def f():\n    1/0\nf()"} {
		if _, rec := r.cell(t, code); !strings.Contains(rec.stderr(), "\n    1/0\n    ~^~\n") {
			t.Errorf("%q: %s", code, rec.stderr())
		}
	}
}

// What the compiler finds, which is given a tree, is shown with its line as what the parser finds is.
func TestASyntaxErrorIsShownWithItsLine(t *testing.T) {
	r := openSession(t, pythonSession())
	for _, code := range []string{"x = 1\nreturn 5", "x = 1\nf(1,\n  x=1, x=2)", "def f():\n  nonlocal nope", "x = 1\nbreak"} {
		res, rec := r.cell(t, code)
		lines := strings.Split(code, "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); describe(res) != "failed exit 1" || !strings.Contains(rec.stderr(), "\n    "+last+"\n") {
			t.Errorf("%q: %s %q", code, describe(res), rec.stderr())
		}
	}
}

// A semicolon hides the last value wherever it stands behind it, and nothing that is in a string or a comment is one.
func TestASemicolonHidesTheValue(t *testing.T) {
	r := openSession(t, pythonSession())
	for code, want := range map[string]string{
		"1": "1", "1;": "", "1; # c": "", "1 # ;": "1", "';'": "';'", "('é'\n)  ;\n# c\n": "", "(1,\n2)\n# ;": "(1, 2)", "1\r\n2;\r\n": "",
		"1\r2": "2", "x = 5; x": "5", "\ufeff6": "6",
	} {
		r.wants(t, code, "", want)
	}
}

// The forms that an object gives itself, as IPython asks for them; one that is none takes no other with it.
func TestAnObjectsOwnForms(t *testing.T) {
	r := openSession(t, pythonSession())
	for _, given := range []string{"self, include, exclude", "self, include=None, exclude=None", "self, **kw", "self"} {
		_, rec := r.cell(t, "class F:\n  def _repr_mimebundle_("+given+"):\n    return {1: 2, 'a/b': 5, 'text/html': '<i>', 'text/plain': 'own'}, {}\nF()")
		if got := rec.value(); got != "own" || string(rec.displays[0].Data["text/html"]) != "<i>" {
			t.Errorf("%s: %q %+v %s", given, got, rec.displays, rec.stderr())
		}
	}
}

// multiprocessing makes sockets in TMPDIR, whose paths may have 107 bytes: we take little of them.
func TestTheTemporaryFolderHasAShortName(t *testing.T) {
	cfg := testConfig(t)
	r := openSessionWith(t, cfg, pythonSession())
	_, rec := r.cell(t, "import tempfile; print(tempfile.gettempdir(), end='')")
	got, own := strings.CutPrefix(rec.stdout(), cfg.WorkRoot)
	if own != !cfg.Tmpfs || own && len(got) > len("/12345678t") || !own && got != "/tmp" {
		t.Errorf("%q in %q", rec.stdout(), cfg.WorkRoot)
	}
}

// A stream that the user took away or broke is not asked for a value, which has a way of its own.
func TestAValueIsShownWithoutStreams(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "import sys; del sys.stdout, sys.__stderr__\n1", "", "1")
	r.wants(t, "2", "", "2")
	r.wants(t, "sys.stdout = 5; 3", "", "3")
}

func TestATimeoutInterruptsAndKeepsTheState(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "import asyncio, os, subprocess, threading, time; x = 1", "", "")
	for _, code := range []string{
		"while True: pass", "time.sleep(1e6)", "subprocess.run(['sleep', '1000000'])", "os.system('sleep 1000000')", "await asyncio.sleep(1e6)",
		"async def f():\n  while True: pass\nawait f()", "threading.Event().wait()",
	} {
		res, rec := r.told(t, cellOf("print('up', flush=True)\n"+code), said{"up", agent.LimitTimeout})
		if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateKept || !strings.Contains(rec.stderr(), "KeyboardInterrupt") && !strings.Contains(code, "os.system") {
			t.Errorf("%s: %s %q %s", code, describe(res), res.SessionState, rec.stderr())
		}
	}
	r.wants(t, "x", "", "1")
}

func TestAnInterpreterThatDoesNotStopIsRestarted(t *testing.T) {
	for name, loop := range map[string]string{"alone": "time.sleep(1)", "with programs that it starts": "os.system('sleep 1')"} {
		t.Run(name, func(t *testing.T) {
			r := openSession(t, pythonSession())
			r.wants(t, "open('kept', 'w').close(); x = 1", "", "")
			start := cellOf("import os, signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nprint('on')\nwhile True: " + loop)
			res, rec := r.told(t, start, said{"on", agent.LimitTimeout}, said{"on", agent.LimitGrace}, said{"on", agent.LimitLast})
			if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateRestarted || rec.stdout() != "on\n" {
				t.Errorf("%s %q %q", describe(res), res.SessionState, rec.stdout())
			}
			r.wants(t, "import os; os.path.exists('kept'), 'x' in globals()", "", "(True, False)")
		})
	}
}

func TestAProgramThatIgnoresInterruptsDoesNotCostTheState(t *testing.T) {
	const deaf = `python3 -c "import signal, time; signal.signal(2, lambda *_: None); print(1, flush=True); time.sleep(1e6)"`
	for name, c := range map[string]struct {
		start                  SessionStart
		set, cell, get, output string
	}{
		"shell":  {shellSession("/bin/bash"), "sleep 1000000 & job=$!; sleep 0.1; x=1", deaf + "; sleep 0.6; echo never; while :; do :; done", "kill -0 $job && echo $x", "1\n"},
		"python": {pythonSession(), "import os; x = 1", "os.system('" + deaf + "')\nwhile True: pass", "print(x)", "1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := openSession(t, c.start)
			r.wants(t, c.set, "", "")
			res, rec := r.told(t, cellOf(c.cell), said{"1", agent.LimitTimeout}, said{"1", agent.LimitGrace})
			if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateKept || rec.stdout() != "1\n" {
				t.Errorf("%s %q %q %q", describe(res), res.SessionState, rec.stdout(), rec.stderr())
			}
			r.wants(t, c.get, c.output, "")
		})
	}
}

func TestACancelInterrupts(t *testing.T) {
	r := openSession(t, pythonSession())
	ctx, cancel := context.WithCancelCause(t.Context())
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindOutput {
			cancel(nil)
		}
		return nil
	}
	start := cellOf("x = 5\nprint('on')\nwhile True: pass")
	res, err := r.Run(ctx, start, RunInput{}, rec)
	if err != nil || res.Status != executor.StatusKilled || res.SessionState != executor.SessionStateKept {
		t.Error(err, describe(res), res.SessionState)
	}
	r.wants(t, "x", "", "5")
}

func TestAnInterpreterThatDiesIsLostUntilARestart(t *testing.T) {
	r := openSession(t, pythonSession())
	for code, want := range map[string]string{
		"print('bye'); import os, sys; sys.stdout.flush(); os._exit(9)": "failed exit 9",
		"print('bye'); import os; os.kill(os.getpid(), 11)":             "failed SIGSEGV",
	} {
		res, rec := r.cell(t, code)
		if describe(res) != want || res.SessionState != executor.SessionStateLost || rec.stdout() != "bye\n" {
			t.Errorf("%s: %s %q %q", code, describe(res), res.SessionState, rec.stdout())
		}
		if res, _ := r.cell(t, "1"); res.Failure == nil || res.Failure.Code != executor.Conflict {
			t.Errorf("a cell in a lost session: %+v", res)
		}
		if err := r.RestartSession(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.wants(t, "1 + 1", "", "2")
	}
}

func TestACommandRunsBesideTheInterpreter(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "x = 1; print(open('a', 'w').write('from python'), end='')", "11", "")
	res, rec := r.run(t, beside("cat a; cat; exit 3"), RunInput{Stdin: strings.NewReader(" in")})
	if describe(res) != "failed exit 3" || rec.stdout() != "from python in" {
		t.Error(describe(res), rec.stdout())
	}
	mark := newMark()
	start := beside(strings.ReplaceAll("setsid sleep MARK & (setsid sh -c 'sleep MARK & echo up; exec sleep MARK' &) ; exec sleep MARK", "MARK", mark))
	res, _ = r.told(t, start, said{"up", agent.LimitTimeout})
	if res.Status != executor.StatusTimedOut {
		t.Error(describe(res))
	}
	if left := sleeping(mark); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	r.wants(t, "x", "", "1")
}

func TestStandardInputIsEachCellsOwn(t *testing.T) {
	r := openSession(t, pythonSession())
	for _, text := range []string{"first", "second"} {
		res, rec := r.run(t, cellOf("input('? ')"), RunInput{Stdin: strings.NewReader(text + "\n")})
		if rec.value() != "'"+text+"'" || rec.stdout() != "? " {
			t.Error(describe(res), rec.value(), rec.stdout(), rec.stderr())
		}
	}
	res, rec := r.run(t, cellOf("import sys; sys.stdin.read()"), RunInput{Stdin: strings.NewReader("to the end")})
	if rec.value() != "'to the end'" {
		t.Error(describe(res), rec.value(), rec.stderr())
	}
	again := "[open('/dev/stdin').read() for _ in range(2)] + [__import__('subprocess').run('cat /dev/stdin', shell=True, capture_output=True).stdout]"
	res, rec = r.run(t, cellOf(again), RunInput{Stdin: strings.NewReader("by name")})
	if rec.value() != "['by name', '', b'']" {
		t.Error(describe(res), rec.value(), rec.stderr())
	}
	if res, rec := r.cell(t, "input()"); describe(res) != "failed exit 1" || !strings.Contains(rec.stderr(), "EOFError") {
		t.Error(describe(res), rec.stderr())
	}
}

func TestWhatRunsInTheBackgroundPrintsIntoTheNextExecution(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, `import threading, os
def work():
    while not os.path.exists('go'): pass
    print('from a thread')
    open('done', 'w').close()
thread = threading.Thread(target=work)
thread.start()`, "", "")
	r.run(t, beside("> go; while [ ! -e done ]; do :; done"), RunInput{})
	res, rec := r.cell(t, "thread.join(); print('now')")
	if rec.stdout() != "from a thread\nnow\n" || rec.earlier != "from a thread\n" {
		t.Errorf("%s %q, earlier %q", describe(res), rec.stdout(), rec.earlier)
	}
}

func TestFilesOfASessionCanBeWrittenAndReadAndListed(t *testing.T) {
	r := openSession(t, pythonSession())
	ctx := t.Context()
	big := strings.Repeat("0123456789abcdef", 300_000)
	f, err := r.WriteFile(ctx, executor.File{Path: "sub/dir/big.bin", SizeBytes: int64(len(big))}, strings.NewReader(big))
	if err != nil || f.Path != "sub/dir/big.bin" || f.SizeBytes != int64(len(big)) {
		t.Fatal(f, err)
	}
	r.wants(t, "import os; open('sub/dir/mine', 'w').write('x'); os.path.getsize('sub/dir/big.bin')", "", "4800000")
	_, body, err := r.ReadFile(ctx, "sub/dir/big.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if err != nil || string(got) != big {
		t.Error(len(got), err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	list, err := r.ListFiles(ctx, "", true)
	var names []string
	for _, f := range list {
		names = append(names, f.Path)
	}
	if err != nil || strings.Join(names, " ") != "sub sub/dir sub/dir/big.bin sub/dir/mine" {
		t.Error(names, err)
	}
	if err := r.RemoveFile(ctx, "sub"); err != nil {
		t.Error(err)
	}
	if _, _, err := r.ReadFile(ctx, "sub/dir/big.bin"); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
}

func TestNoFileLeadsOutOfTheWorkFolder(t *testing.T) {
	r := openSession(t, pythonSession())
	ctx := t.Context()
	secret := workRoot(t) + "/secret"
	if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil { //nolint:gosec // it is meant to be readable
		t.Fatal(err)
	}
	r.wants(t, "import os; os.symlink('"+secret+"', 'file'); os.symlink('/', 'root'); os.symlink('../..', 'up'); os.mkfifo('fifo'); os.symlink('a', 'loop'); os.symlink('loop', 'a')", "", "")
	for _, name := range []string{"file", "file/", "root/etc/passwd", "up/x", "../x", "/etc/passwd", "fifo", "loop", "root/", "up/", "a\x00b", "."} {
		if _, body, err := r.ReadFile(ctx, name); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("read %q: %v", name, err)
			if body != nil {
				_ = body.Close()
			}
		}
		if _, err := r.WriteFile(ctx, executor.File{Path: name, SizeBytes: -1}, strings.NewReader("x")); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("write %q: %v", name, err)
		}
	}
	if raw, err := os.ReadFile(secret); string(raw) != "s" || err != nil {
		t.Error("the secret was written", err)
	}
	list, err := r.ListFiles(ctx, ".", true)
	for _, f := range list {
		if f.Directory || strings.Contains(f.Path, "/") {
			t.Errorf("listed: %+v", f)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeWrittenWholeIsNotThere(t *testing.T) {
	start := pythonSession()
	start.Limits.DiskBytes = 8 << 20
	r := openSession(t, start)
	ctx := t.Context()
	if _, err := r.WriteFile(ctx, executor.File{Path: "big", SizeBytes: -1}, strings.NewReader(strings.Repeat("x", 10<<20))); executor.CodeOf(err) != executor.Exhausted {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := r.WriteFile(ctx, executor.File{Path: "cut", SizeBytes: -1}, io.MultiReader(strings.NewReader("half"), failingReader{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
	r.wants(t, "import os; os.listdir()", "", "[]")

	// Nor are the folders that were made for it; those that were there stay.
	r.wants(t, "os.makedirs('had/empty')", "", "")
	for _, name := range []string{"new/folder/cut", "had/new/cut", "had/empty/cut"} {
		if _, err := r.WriteFile(ctx, executor.File{Path: name, SizeBytes: -1}, io.MultiReader(strings.NewReader("half"), failingReader{broken})); !errors.Is(err, broken) {
			t.Error(err)
		}
		if _, err := r.WriteFile(ctx, executor.File{Path: name, SizeBytes: -1}, strings.NewReader(strings.Repeat("x", 10<<20))); executor.CodeOf(err) != executor.Exhausted {
			t.Error(err)
		}
		if _, err := r.WriteFile(ctx, executor.File{Path: name, SizeBytes: 3}, strings.NewReader("four")); executor.CodeOf(err) != executor.Invalid {
			t.Error(err)
		}
	}
	if _, err := r.WriteFile(ctx, executor.File{Path: "made/" + strings.Repeat("x", 200) + "/" + strings.Repeat("y", 255) + "/" + ".pyexec-writing-", SizeBytes: -1}, strings.NewReader("x")); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a name that is never listed: %v", err)
	}
	r.wants(t, "sorted(d for d, _, _ in os.walk('.')), [f for _, _, f in os.walk('.') if f]", "", "(['.', './had', './had/empty'], [])")
}

func TestUploadsThatFailDoNotTakeTheFolderOfOthers(t *testing.T) {
	r := openSession(t, pythonSession())
	var all sync.WaitGroup
	for writer := range 4 {
		for _, fails := range []bool{false, true} {
			all.Go(func() {
				for i := range 20 {
					folder := fmt.Sprintf("a/b%d", i)
					if fails {
						_, _ = r.WriteFile(t.Context(), executor.File{Path: fmt.Sprintf("%s/cut%d", folder, writer), SizeBytes: -1}, failingReader{errors.New("broken")})
					} else if _, err := r.WriteFile(t.Context(), executor.File{Path: fmt.Sprintf("%s/%d", folder, writer), SizeBytes: -1}, strings.NewReader("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	list, err := r.ListFiles(t.Context(), "", true)
	if len(list) != 1+20+4*20 || err != nil {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestVariablesAreListed(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "import os\nb = [1] * 10**6\na = 'text'\n_hidden = 1\nclass Bad:\n  def __repr__(self): raise ValueError\nc = Bad()", "", "")
	list, err := r.Variables(t.Context())
	var got []string
	for _, v := range list {
		got = append(got, v.Name+":"+v.Type)
		if len([]rune(v.Preview)) > 200 {
			t.Errorf("a long preview: %+v", v)
		}
	}
	if err != nil || strings.Join(got, " ") != "Bad:type a:str b:list c:Bad" {
		t.Error(got, err)
	}
}
