//go:build linux

package runner

import (
	"context"
	"crypto/sha512"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
)

// findControl is what code that looks for the control channel finds: control.
const findControl = `import os, json
control = [int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f) and os.readlink('/proc/self/fd/' + f).startswith('socket')][0]
def forge(**m): os.write(control, json.dumps(m).encode() + b'\n')
`

func TestCodeThatWritesIntoTheControlChannelHurtsItsOwnSessionOnly(t *testing.T) {
	r := openSession(t, pythonSession())
	for name, code := range map[string]string{
		"garbage":             "os.write(control, b'garbage\\n')",
		"no object":           "os.write(control, b'[1]\\n')",
		"a line without end":  "[os.write(control, b'x' * 65536) for _ in range(200)]",
		"a closed channel":    "os.close(control)",
		"everything closed":   "os.closerange(0, 1 << 16)",
		"half of a line":      "os.write(control, b'{\"op\"'); os.shutdown if False else os._exit(1)",
		"a channel shut down": "import socket; socket.socket(fileno=control).shutdown(2)",
	} {
		res, _ := r.cell(t, findControl+code)
		if res.Status != executor.StatusFailed || res.SessionState != executor.SessionStateLost {
			t.Errorf("%s: %s %q %+v", name, describe(res), res.SessionState, res.Failure)
		}
		// It is the code's doing, and told as such; we did not fail.
		if f := res.Failure; f == nil && name == "garbage" || f != nil && (f.Code != executor.Conflict || !strings.Contains(f.Message, "control channel")) {
			t.Errorf("%s: %+v", name, f)
		}
		if err := r.RestartSession(t.Context(), false); err != nil {
			t.Fatal(name, err)
		}
		r.wants(t, "1 + 1", "", "2")
	}
}

func TestForgedAnswersAreBounded(t *testing.T) {
	r := openSession(t, pythonSession())
	res, rec := r.cell(t, findControl+`
import base64
forge(op='nothing', n=1); forge(op='done', n=999, code=0); forge(op='display', n=999, display={})
big = base64.b64encode(b'x' * (2 << 20)).decode()
for _ in range(500): forge(op='display', n=1, display={'data': {'text/plain': 'eA=='}})
for bad in [{'data': {}}, {'data': []}, {'data': {'a': 'not base64!'}}, {'data': {str(i): 'eA==' for i in range(100)}}, {'data': {'x' * 300: 'eA=='}}, 5, None]:
    forge(op='display', n=1, display=bad)
print('done')`)
	if describe(res) != "succeeded exit 0" || len(rec.displays) != executor.MaxDisplays || res.DisplaysDropped < 300 || rec.stdout() != "done\n" {
		t.Errorf("%s: %d displays, %d dropped", describe(res), len(rec.displays), res.DisplaysDropped)
	}
	// A cell that says that it has ended, and has not: what comes next waits for it, and its clock ends that.
	res, _ = r.cell(t, findControl+"forge(op='done', n=2, code=5)\nimport time\nwhile True:\n  try: time.sleep(1)\n  except BaseException: pass")
	if describe(res) != "failed exit 5" {
		t.Error(describe(res))
	}
	if res, _ = r.told(t, cellOf("1"), said{"", agent.LimitTimeout}, said{"", agent.LimitGrace}); res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateRestarted {
		t.Error(describe(res), res.SessionState)
	}
	res, _ = r.cell(t, findControl+"import threading\ndef forever():\n  while True: forge(op='variables', n=3, variables=[{'name': 'n' * 9999, 'type': 1}])\nthreading.Thread(target=forever, daemon=True).start()")
	if describe(res) != "succeeded exit 0" {
		t.Error(describe(res))
	}
	r.wants(t, "1 + 1", "", "2")
	_, _ = r.Variables(t.Context()) // an answer or an error, no hang
}

func TestLargeDisplaysWaitForASlowHost(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "class Image:\n  def _repr_png_(self): return b'x' * (1 << 20)", "", "")
	rec, large := newRecord(), make([]byte, 1<<20)
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindDisplay {
			for range 5 {
				sha512.Sum512(large) // slower than they are made
			}
		}
		return nil
	}
	res, err := r.Run(t.Context(), cellOf("for i in range(12): display(Image())"), RunInput{}, rec)
	if err != nil || describe(res) != "succeeded exit 0" || len(rec.displays) != 12 || res.DisplaysDropped != 0 {
		t.Error(err, describe(res), len(rec.displays), res.DisplaysDropped)
	}
}

func TestFiguresThatAreOpenAreDisplayed(t *testing.T) {
	r := openSession(t, pythonSession())
	for name, text := range map[string]string{
		"matplotlib/__init__.py": "",
		"matplotlib/figure.py": `class Figure:
    canvas = None
    def get_children(self): return ['background', 'axes']
    def savefig(self, out, format, bbox_inches): out.write(format.encode() + b' of ' + str(self.number).encode())
    def __repr__(self): return '<Figure>'
`,
		"matplotlib/pyplot.py": `from matplotlib.figure import Figure
figures = {}
def figure(number=None):
    if number not in figures:
        f = Figure(); f.number = number = len(figures) + 1; figures[number] = f
    return figures[number]
def get_fignums(): return sorted(figures)
def close(which): figures.clear()
def show(): raise RuntimeError('not replaced')
`,
	} {
		if _, err := r.WriteFile(t.Context(), executor.File{Path: name, SizeBytes: int64(len(text))}, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	for code, want := range map[string]string{
		"import matplotlib.pyplot as plt; plt.figure(); f = plt.figure()":                     "png of 1|svg of 1,png of 2|svg of 2",
		"import matplotlib.pyplot as plt; f = plt.figure(); plt.show(); plt.get_fignums()":    "png of 1|svg of 1,|",
		"import matplotlib.pyplot as plt; f = plt.figure(); f":                                "png of 1|svg of 1",
		"import matplotlib.pyplot as plt; f = plt.figure(); 1 / 0":                            "png of 1|svg of 1",
		"import os; os.environ['MPLBACKEND'], plt.get_fignums() if 'plt' in globals() else 0": "|",
	} {
		_, rec := r.cell(t, code)
		var got []string
		for _, d := range rec.displays {
			got = append(got, string(d.Data["image/png"])+"|"+string(d.Data["image/svg+xml"]))
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s: %q, want %q; %s", code, got, want, rec.stderr())
		}
	}
}

// TestSessionsWithoutControlGroups holds what they promise where nothing but the process tree tells who started what.
func TestSessionsWithoutControlGroups(t *testing.T) {
	cfg := testConfig(t)
	cfg.Cgroups = nil
	r := openSessionWith(t, cfg, pythonSession())
	first, second := newMark(), newMark()
	r.wants(t, "import subprocess; p = subprocess.Popen(['sleep', '"+first+"']); x = 1", "", "")
	start := beside(strings.ReplaceAll("(setsid sh -c 'sleep MARK & echo up; exec sleep MARK' &) ; exec sleep MARK", "MARK", second))
	if res, _ := r.told(t, start, said{"up", agent.LimitTimeout}); res.Status != executor.StatusTimedOut {
		t.Error(describe(res))
	}
	if left := sleeping(second); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	r.wants(t, "p.poll(), x", "", "(None, 1)")
	res, _ := r.cell(t, "len(b'x' * (50 << 20))")
	if res.CPU < 0 || res.PeakMemoryBytes < 50<<20 {
		t.Errorf("CPU %s, peak %d", res.CPU, res.PeakMemoryBytes)
	}
	if err := r.RestartSession(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if left := sleeping(first); len(left) > 0 {
		t.Errorf("alive after a restart: %v", left)
	}
	r.wants(t, "import os; os.listdir()", "", "[]")
}

// newMark returns a time to sleep, in seconds, that no other process sleeps.
func newMark() string { return fmt.Sprint(1_000_000 + rand.IntN(1_000_000_000)) } //nolint:gosec // a name

// sleeping returns the processes that sleep for a mark.
func sleeping(mark string) (pids []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		raw, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && string(raw) == "sleep\x00"+mark+"\x00" {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

func TestWhatACellUsesIsItsOwn(t *testing.T) {
	r := openSession(t, pythonSession())
	res, _ := r.cell(t, "x = b'x' * (100 << 20)\nimport time\nbegin = time.process_time()\nwhile time.process_time() - begin < 1: pass\ndel x")
	if res.CPU < 950*time.Millisecond || res.PeakMemoryBytes < 100<<20 || res.Wall < 950*time.Millisecond {
		t.Errorf("%+v", res)
	}
	res, _ = r.cell(t, "None")
	if res.CPU > 900*time.Millisecond || res.CPU < 0 || res.PeakMemoryBytes == 0 {
		t.Errorf("the next one: %+v", res)
	}
	if res.PeakMemoryBytes > 90<<20 && canResetPeak(t) {
		t.Errorf("the next one has the peak of the one before: %d", res.PeakMemoryBytes)
	}
}

// canResetPeak reports whether the kernel can begin the peak of a group of this test anew. Linux before 6.12 cannot with control groups v2.
func canResetPeak(t *testing.T) bool {
	t.Helper()
	groups := testCgroups(t)
	if groups["memory"] != "" || !groups.Enforces("memory") { // v1, or the peak of one process
		return true
	}
	f, err := os.OpenFile(filepath.Join(groups["unified"], "memory.peak"), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_, err = f.WriteString("0")
	return err == nil && f.Close() == nil
}

func TestTooMuchMemoryEndsACellAsOutOfMemory(t *testing.T) {
	start := pythonSession()
	start.Limits.MemoryBytes, start.Limits.DiskBytes = 64<<20, 8<<20
	r := openSession(t, start)
	res, _ := r.cell(t, "x = [b'x' * (1 << 20) for _ in range(200)]")
	if limited := len(testConfig(t).Cgroups) > 0; limited && (res.Status != executor.StatusOutOfMemory || res.SessionState != executor.SessionStateLost) {
		t.Error(describe(res), res.SessionState)
	}
	res, _ = r.run(t, beside("exit 4"), RunInput{})
	if describe(res) != "failed exit 4" {
		t.Error(describe(res))
	}
}

func TestArtifactsOfACellAreCollected(t *testing.T) {
	r := openSession(t, pythonSession())
	r.wants(t, "open('old.txt', 'w').write('o'); None", "", "")
	start := cellOf("open('new.txt', 'w').write('n'); None")
	start.OutputsChanged = true
	_, rec := r.run(t, start, RunInput{})
	if fmt.Sprint(rec.files) != "map[new.txt:n]" {
		t.Error(rec.files)
	}
}

func TestARestartKillsWhatRuns(t *testing.T) {
	r := openSession(t, pythonSession())
	for _, start := range []Start{cellOf("import time\nwhile True:\n  try: time.sleep(9)\n  except BaseException: pass"), beside("trap '' TERM; sleep 1000000; sleep 1000000")} {
		rec := newRecord()
		done := make(chan executor.Result, 1)
		go func() {
			res, err := r.Run(context.Background(), start, RunInput{}, rec)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		<-rec.started
		if err := r.RestartSession(t.Context(), false); err != nil {
			t.Error(err)
		}
		if res := <-done; res.Status != executor.StatusKilled {
			t.Error(describe(res))
		}
		r.wants(t, "2 + 2", "", "4")
	}
}

func TestARunnerIsAsBeforeWhenItsSessionIsClosed(t *testing.T) {
	r := openSession(t, pythonSession())
	if err := r.OpenSession(t.Context(), pythonSession()); executor.CodeOf(err) != executor.Conflict {
		t.Error(err)
	}
	if res, _ := r.run(t, python("print('plain')"), RunInput{}); res.Failure == nil || res.Failure.Code != executor.Conflict {
		t.Errorf("beside a session: %+v", res)
	}
	r.wants(t, "1", "", "1") // and it has hurt nothing
	for range 2 {
		if err := r.CloseSession(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Variables(t.Context()); executor.CodeOf(err) != executor.NotFound {
		t.Error(err)
	}
	if res, _ := r.cell(t, "1"); res.Failure == nil || res.Failure.Code != executor.NotFound {
		t.Errorf("%+v", res)
	}
	if res, rec := r.run(t, python("print('plain')"), RunInput{}); describe(res) != "succeeded exit 0" || rec.stdout() != "plain\n" {
		t.Error(describe(res), rec.stderr())
	}
	if err := r.OpenSession(t.Context(), pythonSession()); err != nil {
		t.Fatal(err)
	}
	r.wants(t, "5", "", "5")
}

func TestAnOpeningThatIsGivenUpLeavesARunnerThatCanBeUsed(t *testing.T) {
	r := startRunner(t, testConfig(t))
	slow := pythonSession()
	for range 3 {
		mark := newMark()
		slow.Interpreter = []string{"/bin/sh", "-c", "exec sleep " + mark}
		ctx, cancel := context.WithCancelCause(t.Context())
		opened := make(chan error, 1)
		go func() { opened <- r.OpenSession(ctx, slow) }()
		awaittest.Until(t, "the start of the interpreter", func() bool { return len(sleeping(mark)) > 0 })
		cancel(nil)
		if err := awaittest.Recv(t, "the end of the opening", opened); executor.CodeOf(err) != executor.Unavailable {
			t.Error(err)
		}
		if res, _ := r.run(t, shell("true"), RunInput{}); describe(res) != "succeeded exit 0" {
			t.Errorf("%s %+v", describe(res), res.Failure)
		}
	}
}

func TestASessionWhoseInterpreterDoesNotComeUpSaysWhy(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for program, want := range map[string]executor.Code{"/no/such/python": executor.Invalid, "/bin/false": executor.Unavailable, "/bin/cat": executor.Unavailable} {
		start := pythonSession()
		start.Interpreter = []string{program}
		if err := r.OpenSession(t.Context(), start); executor.CodeOf(err) != want {
			t.Errorf("%s: %v", program, err)
		}
	}
	start := pythonSession()
	start.Interpreter = []string{"/bin/sh", "-c", "echo no module named site >&2; exit 3"}
	if err := r.OpenSession(t.Context(), start); err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no module named site") {
		t.Error(err)
	}
	if res, _ := r.run(t, shell("true"), RunInput{}); describe(res) != "succeeded exit 0" {
		t.Error(describe(res))
	}
}
