package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fmt"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

func pluginRules() []rule {
	return []rule{
		{"PL-01", "started by hand the program says that it is a plugin, and exits with a status other than 0", startedByHand},
		{"PL-02", "the gRPC health service says that the service plugin is SERVING", healthy},
		{"PL-03", "pings are answered while a program runs", pingsMeanwhile},
		{"PL-04", "an unknown key of its section is refused as invalid, and the error names backends.NAME.KEY", unknownKey},
		{"PL-05", "a drain is answered when the backend is closed, and the process then exits by itself", drains},
		{"PL-06", "when its host is gone the plugin ends its programs and exits by itself", hostGone},
		{"PL-07", "two processes of a plugin with one data folder do not disturb each other", twoProcesses},
	}
}

// noPings is a PingInterval at which the process sends none. The suite sends them.
const noPings = 1000 * time.Hour

// program starts the processes of a plugin program. Only one goroutine uses it.
type program struct {
	options plugin.LaunchOptions
	// serving is the process of the suite's Backend, and started are all processes so far.
	serving *plugin.Process
	started []*plugin.Process
}

// CheckPlugin runs the suite and the rules of plugins on the program of o, and returns one result per rule, in order. It starts
// several processes of the program, one after another and two at a time, with the same Configure. The Launch of the first may
// fail, which is the error of CheckPlugin.
func CheckPlugin(ctx context.Context, o plugin.LaunchOptions, options Options) ([]RuleResult, error) {
	o.PingInterval = noPings
	p := &program{options: o}
	first, err := p.launch(ctx)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	p.serving = first
	s := newSuite(first.Backend(), LaneProcess, options, nil)
	s.program = p
	s.victim = func() (executor.Backend, func()) {
		one, err := p.launch(ctx)
		if err != nil {
			return gone{err}, func() {}
		}
		return one.Backend(), func() { killed(one) }
	}
	s.successor = func() executor.Backend {
		killed(p.serving)
		one, err := p.launch(ctx)
		if err != nil {
			return gone{err}
		}
		p.serving = one
		return one.Backend()
	}
	results := s.checkAll(ctx)
	for _, r := range results {
		for i := range r.Errors {
			r.Errors[i] = awaittest.WithoutEvidence(r.Errors[i]) // authors of plugins read them
		}
	}
	return results, nil
}

// launch starts a process.
func (p *program) launch(ctx context.Context) (*plugin.Process, error) {
	one, err := plugin.Launch(ctx, p.options)
	if err == nil {
		p.started = append(p.started, one)
	}
	return one, err
}

func (p *program) kill() {
	for _, one := range p.started {
		one.Kill()
	}
}

// killed ends a process with SIGKILL.
func killed(p *plugin.Process) {
	_ = syscall.Kill(p.PID(), syscall.SIGKILL) // it may be gone
	p.Kill()
}

// gone is the Backend of a process that could not be started.
type gone struct{ err error }

// Info implements executor.Backend.
func (g gone) Info(context.Context) (executor.Info, error) { return executor.Info{}, g.err }

// Run implements executor.Backend.
func (g gone) Run(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
	return executor.Result{}, g.err
}

// Attach implements executor.Backend.
func (g gone) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, g.err
}

// Remove implements executor.Backend.
func (g gone) Remove(context.Context, string) error { return g.err }

// another starts one more process, which the end of the case kills.
func (c *Case) another() *plugin.Process {
	p, err := c.suite.program.launch(c.ctx)
	if err != nil {
		c.Fatalf("start another process: %v", err)
	}
	c.Cleanup(p.Kill)
	return p
}

// exits waits until a process has exited by itself.
func (c *Case) exits(p *plugin.Process) {
	awaittest.Until(c, fmt.Sprintf("the exit of process %d by itself", p.PID()), func() bool { return syscall.Kill(p.PID(), 0) != nil })
}

func startedByHand(c *Case) {
	o := c.suite.program.options
	ctx := awaittest.Context(c)
	args := o.Args
	if len(args) == 0 {
		args = []string{o.Path}
	}
	cmd := exec.CommandContext(ctx, o.Path, args[1:]...) //nolint:gosec // the program under test
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		c.Fatalf("%v: it said %q", context.Cause(ctx), clip(string(said)))
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		c.Errorf("it must exit with a status other than 0 (got %v)", err)
	}
	if !strings.Contains(strings.ToLower(string(said)), "plugin") {
		c.Errorf("it must say that it is a plugin (got %q)", clip(string(said)))
	}
}

func healthy(c *Case) {
	if err := c.suite.program.serving.Health(awaittest.Context(c)); err != nil {
		c.Errorf("health: %v", err)
	}
}

func pingsMeanwhile(c *Case) {
	r := c.start(c.job(hang))
	r.says("up\n")
	for range 3 {
		if err := c.suite.program.serving.Ping(awaittest.Context(c)); err != nil {
			c.Fatalf("ping: %v", err)
		}
	}
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled)
}

func unknownKey(c *Case) {
	const key = "pyexec_law_no_such_key"
	o := c.suite.program.options
	section := map[string]json.RawMessage{}
	if len(o.Configure.Options) > 0 {
		if err := json.Unmarshal(o.Configure.Options, &section); err != nil {
			c.Fatalf("the section: %v", err)
		}
	}
	section[key] = json.RawMessage("1")
	raw, err := json.Marshal(section)
	if err != nil {
		c.Fatalf("the section: %v", err)
	}
	o.Configure.Options = raw
	p, err := plugin.Launch(c.ctx, o)
	if err == nil {
		p.Kill()
		c.Fatalf("a section with the key %s was accepted", key)
	}
	if field := "backends." + o.Configure.Name + "." + key; executor.CodeOf(err) != executor.Invalid || !names(err, field) {
		c.Errorf("got code %s, %v; want code invalid and the field %s", executor.CodeOf(err), err, field)
	}
}

func drains(c *Case) {
	p := c.another()
	c.programOn(p.Backend())
	if err := p.Drain(awaittest.Context(c)); err != nil {
		c.Fatalf("drain: %v", err)
	}
	c.exits(p)
}

func hostGone(c *Case) {
	p := c.another()
	job := c.job(Program{Python: family + "time.sleep(3600)\n", Fake: fakeFamily + "hang"})
	job.Spec.Args = []string{c.mark()}
	r := c.startOn(p.Backend(), job)
	r.says("up\n")
	p.Cut()
	c.exits(p)
	r.wait()
	if c.caps().Attach {
		return // its programs live on for the next process
	}
	awaittest.Until(c, "the end of the programs of a plugin without a host", func() bool { return len(c.marked()) == 0 })
}

// twoProcesses lets a program run on while another process of the plugin starts, serves and is drained. A host does the same
// when its configuration changes.
func twoProcesses(c *Case) {
	read, write := io.Pipe()
	c.Cleanup(func() { _ = write.Close() }) // a pipe's Close returns no error
	job := c.job(Program{
		Python: "import sys\nopen('mine', 'w').write('mine')\nprint('up')\nsys.stdin.read()\nprint(open('mine').read())\n",
		Fake:   "write-file mine mine\nprint up\nread-stdin\ncat mine\nprint \"\"",
	})
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
	r := c.start(job)
	r.says("up\n")
	other := c.another()
	c.programOn(other.Backend())
	if err := other.Drain(awaittest.Context(c)); err != nil {
		c.Errorf("drain of the other process: %v", err)
	}
	other.Kill()
	_ = write.Close() // a pipe's Close returns no error
	r.wait().succeeded().prints("up\nmine\n")
}
