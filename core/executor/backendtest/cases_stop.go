package backendtest

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func stopRules() []rule {
	return []rule{
		{"BE-40", "a Run whose ctx has ended before the start is killed without Started, and no error", cancelBefore},
		{"BE-41", "cancel in preparation: killed without Started, and no error", cancelInPreparation},
		{"BE-42", "cancel while the program is silent: killed by SIGTERM, and no error", cancelSilent},
		{"BE-43", "cancel while the program floods, even into a slow sink: killed, and no error", cancelFlooding},
		{"BE-44", "a program that ignores SIGTERM gets SIGKILL after the grace, at cancel and at the timeout", ignoresTerm},
		{"BE-45", "a program that exits within the grace of a cancel stays killed, with its exit code", graceOnCancel},
		{"BE-49", "with interrupt_on_cancel a cancel sends SIGINT, and what the program then writes is kept", cancelInterrupts},
	}
}

func treeRules() []rule {
	return []rule{
		{"BE-46", "when the program ends its descendants die at once and delay nothing", descendantsDieWithIt},
		{"BE-47", "at timeout and cancel every descendant dies: daemons, those that ignore SIGTERM, those that hold the streams", descendantsDieOnStop},
	}
}

func cancelBefore(c *Case) {
	job := c.job(helloProgram)
	c.workspace(&job, archive(entry{name: "a.txt", text: "a"}))
	r := c.start(job, func(r *running) { r.cancel(errCancelled) }).wait()
	r.neverStarted()
}

// neverStarted ends the case unless the run was killed before its program started.
func (r *running) neverStarted() {
	r.status(executor.StatusKilled)
	if r.hasStarted() || r.result.ExitCode != nil || r.result.Signal != "" {
		r.c.Errorf("a program was started: %s", r.verdict())
	}
}

func cancelInPreparation(c *Case) {
	job := c.job(helloProgram)
	half := archive(entry{name: "a.txt", text: "a"})[:700]
	in, out := io.Pipe()
	c.Cleanup(func() { _ = out.Close() }) // a pipe's Close returns no error
	job.Workspace = c.source("workspace", nil, func() io.ReadCloser { return in })
	r := c.start(job)
	// The write returns when the Backend has read the first bytes, so the Backend is then in preparation.
	if _, err := out.Write(half); err != nil {
		c.Errorf("write the workspace: %v", err)
	}
	r.cancel(errCancelled)
	r.wait().neverStarted()
}

func cancelSilent(c *Case) {
	job := c.job(hang)
	job.Limits.KillGrace = awaittest.Forever
	r := c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).signal("SIGTERM").prints("up\n")
}

// cancelInterrupts cancels a program that saves its work at Ctrl-C. Its files are kept, too.
func cancelInterrupts(c *Case) {
	job := c.job(Program{
		Python: "import time\ntry:\n    print('up')\n    time.sleep(3600)\nexcept KeyboardInterrupt:\n    open('saved', 'w').close()\n",
		Fake:   "on-int saved\nprint up\nhang",
	})
	job.Spec.InterruptOnCancel, job.Spec.OutputsChanged, job.Limits.KillGrace = true, c.caps().Artifacts, awaittest.Forever
	r := c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	end := r.wait().status(executor.StatusKilled).prints("up\n")
	if list := end.result.Artifacts; c.caps().Artifacts && (len(list) != 1 || list[0].Path != "saved") {
		c.Errorf("kept %v", list)
	}
	job = c.job(hang)
	job.Spec.InterruptOnCancel, job.Limits.KillGrace = true, awaittest.Forever
	r = c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).signal("SIGINT")
}

func cancelFlooding(c *Case) {
	forever := Program{
		Python: "import sys\nwhile True:\n    sys.stdout.buffer.write(b'0123456789abcde\\n' * 4096)\n",
		Fake:   "flood stdout 1000GB",
	}
	for _, slow := range []bool{false, true} {
		job := c.job(forever)
		job.Limits.OutputBytes = executor.Unlimited
		r := c.start(job, func(r *running) {
			if slow {
				r.holds(nil)
			}
		})
		r.until("a megabyte of the flood", func(j *journal) bool { return j.next[executor.Stdout] > held })
		r.cancel(errCancelled)
		r.wait().status(executor.StatusKilled)
	}
}

// held is how much of a flood a Sink takes before it holds the flood.
const held = 1 << 20

// holds makes the Sink of r stop in the middle of a flood, until over is closed or the ctx of Run ends.
func (r *running) holds(over <-chan struct{}) {
	r.onEmit = func(executor.Event) error {
		if r.next[executor.Stdout] > held {
			select {
			case <-over:
			case <-r.ctx.Done():
			}
		}
		return nil
	}
}

// deaf ignores SIGTERM and prints "up".
var deaf = Program{
	Python: "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(3600)\n",
	Fake:   "ignore-term\nprint up\nhang",
}

func ignoresTerm(c *Case) {
	job := c.job(deaf)
	job.Limits.KillGrace = 300 * time.Millisecond
	r := c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).signal("SIGKILL")

	r = c.byTheClock(true, c.limited(deaf)).signal("SIGKILL")
	r.inTime(r.job.Limits.Timeout, r.job.Limits.KillGrace)
}

func graceOnCancel(c *Case) {
	job := c.job(leavesOnTerm)
	job.Limits.KillGrace = awaittest.Forever
	r := c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).exit(0)
}

// family starts four kinds of descendants, which ignore SIGTERM and hold the streams open, and prints "up".
const family = `
import os, signal, sys, time

def idle():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    time.sleep(3600)
    print("a descendant is still here")
    os._exit(0)

def child():  # a plain child
    if os.fork() == 0:
        idle()

def session():  # one in a session of its own, and it is when this returns: gVisor hangs up a group that is left while one of it is stopped
    near, far = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(far)
        idle()
    os.close(far)
    os.read(near, 1)
    os.close(near)

def daemon():  # double-forked: its parent is gone
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            idle()
        os._exit(0)
    os.waitpid(pid, 0)

def stopped():  # stopped: SIGTERM would only wait
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        idle()

child(); session(); daemon(); stopped()
print("up")
`

const fakeFamily = `
spawn-grandchild a descendant is still here
spawn-grandchild a descendant is still here
print up
`

func descendantsDieWithIt(c *Case) {
	for _, end := range []struct {
		p      Program
		status executor.Status
	}{
		{Program{Python: family, Fake: fakeFamily}, executor.StatusSucceeded},
		{Program{Python: family + "os._exit(7)\n", Fake: fakeFamily + "exit 7"}, executor.StatusFailed},
		{Program{Python: family + "os.kill(os.getpid(), signal.SIGKILL)\n", Fake: fakeFamily + "signal KILL"}, executor.StatusFailed},
	} {
		job := c.job(end.p)
		job.Spec.Args = []string{c.mark()}
		r := c.run(job).status(end.status).prints("up\n")
		if r.result.Wall > late {
			c.Errorf("its end took %s", r.result.Wall)
		}
		c.noneLeft()
	}
}

func descendantsDieOnStop(c *Case) {
	p := Program{Python: family + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)\n", Fake: fakeFamily + "ignore-term\nhang"}
	c.timesOut(true, c.limited(p)).prints("up\n")
	c.noneLeft()

	job := c.job(p)
	job.Spec.Args = []string{c.mark()}
	job.Limits.KillGrace = 100 * time.Millisecond
	r := c.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).prints("up\n")
	c.noneLeft()
}

// noneLeft checks that no process of this machine has the case's mark after Run has returned. The programs of the fake are not
// processes.
func (c *Case) noneLeft() {
	if left := c.marked(); len(left) > 0 {
		c.Errorf("processes are left: %q", left)
	}
}

// marked lists the processes of this machine that have the case's mark.
func (c *Case) marked() []string {
	if c.suite.options.Dialect == DialectFake {
		return nil
	}
	return marked(c.mark())
}

// names reports whether err is an Error whose Fields name field.
func names(err error, field string) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && slices.ContainsFunc(e.Fields, func(f executor.FieldError) bool { return f.Field == field })
}
