package backendtest

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func mixRules() []rule {
	return []rule{
		{"BE-60", "concurrent Executions do not mix: 20 in parallel", parallel},
		{"BE-61", "an Execution leaves nothing that the next one can see: files, environment, processes", nothingStays},
		{"BE-62", "a Run leaves no goroutine behind, however it ends", goroutines},
	}
}

func parallel(c *Case) {
	const runs = 20
	together := runs
	if n := c.suite.info.Capacity; n > 0 {
		together = min(together, n)
	}
	p := Program{
		Python: "import sys\nprint('up', sys.argv[1])\nname = sys.stdin.readline()\nopen('mine.txt', 'w').write(name)\nprint(name, end='')\nprint(open('mine.txt').read(), end='', file=sys.stderr)\n",
		Fake:   "args\nread-line",
	}
	for first := 0; first < runs; first += together {
		var all []*running
		var pipes []*io.PipeWriter
		for i := first; i < min(first+together, runs); i++ {
			in, out := io.Pipe()
			c.Cleanup(func() { _ = out.Close() }) // a pipe's Close returns no error
			job := c.job(p)
			job.Spec.Args = []string{fmt.Sprintf("number-%d-", i)}
			job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return in })
			all, pipes = append(all, c.start(job)), append(pipes, out)
		}
		// The first program goes on only after all have started.
		for i, r := range all {
			r.says(fmt.Sprintf("number-%d-", first+i))
		}
		for i, out := range pipes {
			if _, err := fmt.Fprintf(out, "name-%d-\n", first+i); err != nil {
				c.Errorf("write stdin %d: %v", first+i, err)
			}
			_ = out.Close() // a pipe's Close returns no error
		}
		for i, r := range all {
			r.wait().succeeded()
			if want := fmt.Sprintf("name-%d-\n", first+i); !strings.HasSuffix(r.stdout(), want) || strings.Count(r.stdout(), "n") > 4 || len(r.stderr()) > 0 && r.stderr() != want {
				c.Errorf("number %d says %q and %q", first+i, r.stdout(), r.stderr())
			}
		}
	}
}

func nothingStays(c *Case) {
	first := c.job(Program{
		Python: family + `
home = os.environ["HOME"]
for name in ("left.txt", os.path.join(os.environ["TMPDIR"], "left.txt"), os.path.join(home, ".profile")):
    open(name, "w").write("left")
os.makedirs(os.path.join(home, ".local", "lib"), exist_ok=True)
os.chmod("left.txt", 0)
os.mkdir("locked")
os.chmod("locked", 0)
`,
		Fake: fakeFamily + "write-file left.txt left\nwrite-file tmp/left.txt left\n",
	})
	first.Spec.Env = map[string]string{"LEFT": "yes"}
	first.Spec.Args = []string{c.mark()}
	c.workspace(&first, archive(entry{name: "left/behind.txt", text: "left"}))
	c.run(first).succeeded()
	// Several rounds, so that the Backend reuses everything that it keeps.
	for range 3 {
		next := c.job(Program{
			Python: `
import os
found = []
for folder, folders, names in os.walk(os.environ["HOME"]):
    found += [os.path.join(folder, n) for n in names]
print(sorted(os.path.basename(f) for f in found), "LEFT" in os.environ)
`,
			Fake: "remove main.py\nls\nprint ['main.py'] False\n",
		})
		r := c.run(next).succeeded()
		if got := r.stdout(); got != "['main.py'] False\n" {
			c.Errorf("it finds %q", got)
		}
		if c.suite.options.Dialect == DialectFake {
			env := c.program(Program{Fake: "env"})
			if strings.Contains(env.stdout(), "LEFT") {
				c.Errorf("it sees the environment %q", env.stdout())
			}
		}
	}
	c.noneLeft()
}

// goroutines compares the number of goroutines after two rounds. After the first round all permanent goroutines exist.
func goroutines(c *Case) {
	round := func() {
		before := c.suite.jobs.Load()
		// A Backend may keep resources of an Execution that has ended until Remove.
		defer func() {
			for n := before + 1; n <= c.suite.jobs.Load(); n++ {
				c.remove(c.suite.executionID(n))
			}
		}()
		c.program(helloProgram).succeeded()
		cancelSilent(c)
		c.timesOut(false, c.limited(hang))
		bad := c.bare()
		c.workspace(&bad, []byte("garbage"))
		c.run(bad).status(executor.StatusFailed)
		broken := c.job(hang)
		c.start(broken, func(r *running) { r.onEmit = func(executor.Event) error { return errCancelled } }).wait()
	}
	round()
	before := -int(awaittest.Settled(c, "the number of goroutines", func() int64 { return -int64(runtime.NumGoroutine()) }))
	const rounds = 4
	for range rounds {
		round()
	}
	// A connection that nobody uses may be kept for a while.
	awaittest.UntilNil(c, "the end of the goroutines of each round", func() error {
		if after := runtime.NumGoroutine(); after > before+rounds {
			return fmt.Errorf("%d goroutines after one round, %d after %d more", before, after, rounds)
		}
		return nil
	})
}
