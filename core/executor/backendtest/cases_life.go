package backendtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func lifeRules() []rule {
	return []rule{
		{"BE-80", "Remove is idempotent and safe for an unknown id", removeTwice},
		{"BE-81", "Remove of a running job kills it first", removeRunning},
		{"BE-82", "Attach follows a job that outlived its backend, without gap or repeat, or is unimplemented", attach},
		{"BE-83", "when the plugin is killed its Runs fail as unavailable and nothing is left behind", pluginKilled},
		{"BE-84", "a plugin's backend lives in a process of its own", ownProcess},
		{"BE-85", "where Attach is promised, a Result can be fetched again until it is removed, and is the same", resultAgain},
	}
}

func removeTwice(c *Case) {
	b := c.suite.backend
	for _, id := range []string{c.bare().ID, c.program(helloProgram).job.ID} {
		for range 2 {
			if err := b.Remove(c.ctx, id); err != nil {
				c.Errorf("Remove: %v", err)
			}
		}
	}
	// The id can be used again. A retried Execution uses it again.
	job := c.job(helloProgram)
	c.run(job).succeeded()
	if err := b.Remove(c.ctx, job.ID); err != nil {
		c.Errorf("Remove: %v", err)
	}
	job.Attempt = 2
	c.run(job).succeeded().prints("hello\n")
}

func removeRunning(c *Case) {
	job := c.job(deaf)
	job.Limits.KillGrace = 200 * time.Millisecond
	job.Spec.Args = []string{c.mark()}
	r := c.start(job)
	r.says("up\n")
	if err := c.suite.backend.Remove(c.ctx, job.ID); err != nil {
		c.Errorf("Remove: %v", err)
	}
	c.noneLeft()
	r.wait().status(executor.StatusKilled)
}

func attach(c *Case) {
	b := c.suite.backend
	unknown := c.bare()
	_, err := b.Attach(c.ctx, unknown, executor.Resume{Handle: []byte("unknown")}, newJournal(c.suite, "attach unknown"))
	want := executor.Unimplemented
	if c.caps().Attach {
		want = executor.NotFound
	}
	if executor.CodeOf(err) != want {
		c.Errorf("Attach to an unknown job: %v, want code %s", err, want)
	}
	if !c.caps().Attach {
		return
	}
	if c.suite.successor == nil {
		c.Skipf("the harness cannot let a backend die and start its successor")
	}
	first := awaittest.Ladder(c, 2*time.Second, func(d time.Duration) (*running, bool) {
		first := c.start(c.job(Program{
			Python: fmt.Sprintf("import time\nprint('one')\ntime.sleep(%f)\nprint('two')\n", d.Seconds()),
			Fake:   fmt.Sprintf("print one\nsleep %s\nprint two", d),
		}))
		first.says("one\n")
		c.suite.backend = c.suite.successor()
		first.wait()
		return first, first.err != nil // on a busy machine a program may end before its backend does
	})
	job := first.job
	if executor.CodeOf(first.err) != executor.Unavailable {
		c.Fatalf("the backend died and Run returned %v, %s", first.err, first.verdict())
	}
	first.mu.Lock()
	from := executor.Resume{Handle: first.started[0].Handle, Stdout: first.next[executor.Stdout], Stderr: first.next[executor.Stderr]}
	first.mu.Unlock()
	second := c.begin(job, runAttached(c, from), func(r *running) {
		r.started = first.started
		r.next[executor.Stdout], r.next[executor.Stderr] = from.Stdout, from.Stderr
	}).wait().succeeded()
	if got := first.stdout() + second.stdout(); got != "one\ntwo\n" {
		c.Errorf("both logs together say %q", got)
	}
}

// resultAgain checks that a Result can be asked for again. The process that had the Result may have died before the Result was
// in a log.
func resultAgain(c *Case) {
	c.need(c.caps().Attach, "attach")
	job := c.job(Program{
		Python: "import sys\nopen('a.txt', 'w').write('kept')\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)\n",
		Fake:   "print out\nprint-err err\nwrite-file a.txt kept\nexit 3",
	})
	if c.caps().Artifacts {
		job.Spec.Outputs = []string{"a.txt"}
	}
	first := c.run(job).exit(3)
	// The same Backend is asked again. If the Harness has Abandon, its successor is asked too.
	for range 2 {
		first.again()
		if c.suite.successor != nil {
			c.suite.backend = c.suite.successor()
		}
		first.again()
	}
	if err := c.suite.backend.Remove(c.ctx, job.ID); err != nil {
		c.Errorf("Remove: %v", err)
	}
	if r := c.begin(job, runAttached(c, first.end())).wait(); executor.CodeOf(r.err) != executor.NotFound {
		c.Errorf("Attach to what was removed: %v, %s, want code not_found", r.err, r.verdict())
	}
}

// end returns the end of a log that has everything of r except the Result.
func (r *running) end() executor.Resume {
	r.mu.Lock()
	defer r.mu.Unlock()
	return executor.Resume{Handle: r.started[0].Handle, Stdout: r.next[executor.Stdout], Stderr: r.next[executor.Stderr]}
}

// again asks for the Result of a run that has ended, and compares the Results.
func (r *running) again() {
	from := r.end()
	second := r.c.begin(r.job, runAttached(r.c, from), func(again *running) {
		again.started = r.started
		again.next[executor.Stdout], again.next[executor.Stderr] = from.Stdout, from.Stderr
	}).wait()
	second.noError()
	got, want := second.result, r.result
	got.Phases, want.Phases = executor.Phases{}, executor.Phases{} // durations of the call may differ
	if a, b := resultText(got), resultText(want); a != b {
		r.c.Errorf("asked for again the Result is\n%s, and was\n%s", a, b)
	}
	if text := second.stdout() + second.stderr(); text != "" {
		r.c.Errorf("it said %q again", text)
	}
	for _, a := range r.artifacts {
		if data, ok := second.file(a.header.Name); !ok || !bytes.Equal(data, a.data) {
			r.c.Errorf("the artifact %s is %q, and was %q", a.header.Name, data, a.data)
		}
	}
}

// resultText returns a Result as text, for comparison.
func resultText(r executor.Result) string {
	raw, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func runAttached(c *Case, from executor.Resume) runFunc {
	return func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
		return c.suite.backend.Attach(ctx, job, from, sink)
	}
}

func pluginKilled(c *Case) {
	if c.suite.victim == nil {
		c.Skipf("there is no process to kill in this lane")
	}
	b, kill := c.suite.victim()
	job := c.job(Program{Python: family + "time.sleep(3600)\n", Fake: fakeFamily + "hang"})
	job.Spec.Args = []string{c.mark()}
	r := c.startOn(b, job)
	r.says("up\n")
	kill()
	r.wait()
	if executor.CodeOf(r.err) != executor.Unavailable {
		c.Errorf("Run returned %v and %s, want code unavailable", r.err, r.verdict())
	}
	if _, err := b.Info(c.ctx); executor.CodeOf(err) != executor.Unavailable {
		c.Errorf("Info of the dead returns %v, want code unavailable", err)
	}
	if err := b.Remove(c.ctx, job.ID); executor.CodeOf(err) != executor.Unavailable {
		c.Errorf("Remove of the dead returns %v, want code unavailable", err)
	}
	// The programs end by themselves. The next start of the plugin removes their files.
	next, _ := c.suite.victim()
	c.programOn(next)
	c.clearsUp()
}

// clearsUp waits until nothing is left of an end that nobody waits for.
func (c *Case) clearsUp() {
	awaittest.UntilNil(c, "the end of what a dead process has left", func() error {
		if left := append(c.marked(), c.suite.leftovers()...); len(left) > 0 {
			return fmt.Errorf("there is still %q", left)
		}
		return nil
	})
}

// programOn runs hello on a Backend other than that of the suite.
func (c *Case) programOn(b executor.Backend) {
	c.startOn(b, c.job(helloProgram)).wait().succeeded()
}

func (s *suite) leftovers() []string {
	if s.options.Leftovers == nil {
		return nil
	}
	return s.options.Leftovers()
}

func ownProcess(c *Case) {
	if c.suite.lane != LaneProcess {
		c.Skipf("only the process lane has a process of its own")
	}
	pid := c.suite.info.Details["pid"]
	if _, err := strconv.Atoi(pid); err != nil || pid == strconv.Itoa(os.Getpid()) {
		c.Errorf("the plugin's pid is %q, ours %d", pid, os.Getpid())
	}
}
