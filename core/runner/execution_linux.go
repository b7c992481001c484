package runner

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

var errCancelled = errors.New("cancelled")

// progressEvery is how often a long unpacking tells where it is.
const progressEvery = 500 * time.Millisecond

// execution is one Execution in the runner, from Start until nothing of it is left.
type execution struct {
	agent     *agent
	start     Start
	workspace *inbox
	stdin     *inbox
	artifacts *credit
	box       *outbox
	// sender writes to the host that sends x's input, where hosts come and go; nil elsewhere.
	sender *frameWriter

	cancelled chan struct{} // closed by Cancel
	dropped   chan struct{} // closed when the host is gone for good
	cleaned   chan struct{} // closed when nothing is left
	// Where hosts come back: closed when the Result is there, and when nobody can ask for it any more.
	answered, released chan struct{}

	cancel, drop, release, answeredOnce func()
	// force kills what runs in a session at once; forcedNow is closed then.
	force     func()
	forcedNow chan struct{}

	mu   sync.Mutex
	pid  int    // while the program runs
	next *ahead // for the Execution after this one; from cleaned on

	// Of the execution's own goroutine.
	folder  *folder
	group   *group
	firstPy string
	before  map[string]fileID
	want    globs
	res     executor.Result
	stuck   bool
	ahead   *ahead // what the Execution before has prepared; nil: nothing
	// In a session: the runner's children that are not a Command's, and how many Displays there were.
	spared   map[int]bool
	displays int
}

func newExecution(a *agent, start Start) *execution {
	x := &execution{
		agent: a, start: start,
		artifacts: newCredit(artifactWindow),
		box:       newOutbox(a.out),
		cancelled: make(chan struct{}), dropped: make(chan struct{}), cleaned: make(chan struct{}),
		answered: make(chan struct{}), released: make(chan struct{}),
		group: &group{}, forcedNow: make(chan struct{}),
	}
	x.workspace = newInbox(workspaceWindow, func(n int) { x.grant(channelWorkspace, n) })
	x.stdin = newInbox(stdinWindow, func(n int) { x.grant(channelStdin, n) })
	x.force = sync.OnceFunc(func() { close(x.forcedNow) })
	x.cancel = sync.OnceFunc(func() {
		close(x.cancelled)
		x.workspace.abort(errCancelled)
	})
	x.drop = sync.OnceFunc(func() {
		close(x.dropped)
		x.workspace.abort(errCancelled)
		a.mu.Lock()
		x.artifacts.stop(errCancelled)
		a.mu.Unlock()
		x.box.close()
		if a.up != nil {
			a.up.renew()
		}
	})
	x.release = sync.OnceFunc(func() {
		close(x.released)
		x.artifacts.stop(errResumed) // a.mu is held
	})
	x.answeredOnce = sync.OnceFunc(func() { close(x.answered) })
	return x
}

// grant tells the host that n bytes of x's input were consumed. No credit follows Exited: the host does not know x any more
// by then. The writer of frames decides while it holds its lock, so no Exited comes between the decision and the frame.
func (x *execution) grant(c channel, n int) {
	p := creditPayload(c, n)
	if x.sender != nil {
		_ = x.sender.frame(frameCredit, p...) // a broken connection shows in the reader
		return
	}
	_ = x.agent.out.frameIf(func() bool { return x.agent.now() == x }, frameCredit, p...) // likewise
}

// run does all of it. What the host waits for comes first, the cleaning after the answer.
func (x *execution) run(before *execution) {
	defer close(x.cleaned)
	if before != nil {
		<-before.cleaned
		x.ahead = before.takeNext()
	}
	failure := x.execute()
	if failure != nil {
		x.explain(failure)
	}
	x.workspace.swallow()
	x.stdin.swallow()
	x.deliver(failure == nil)
	err := errors.Join(x.clean(), x.ahead.remove())
	if err != nil {
		x.agent.logf("clean up: %v", err)
		return
	}
	select {
	case <-x.dropped:
	default:
		x.prepareNext()
	}
}

// prepareNext makes ahead of time what the next Execution will need.
func (x *execution) prepareNext() {
	next := prepareAhead(x.agent.cfg, x.agent.disk, x.agent.groupName(), x.start.Limits, x.agent.spawner(x.start.Network))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
}

func (x *execution) takeNext() *ahead {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := x.next
	x.next = nil
	return next
}

// execute prepares and runs. An error means that the program did not run.
func (x *execution) execute() error {
	began := time.Now()
	p, err := x.prepare()
	x.res.Phases.Prepare = time.Since(began)
	if err != nil {
		return err
	}
	return x.runProgram(p)
}

func (x *execution) isCancelled() bool {
	select {
	case <-x.cancelled:
		return true
	case <-x.dropped:
		return true
	default:
		return false
	}
}

// explain turns an error before the program's start into the Result.
func (x *execution) explain(err error) {
	if x.isCancelled() {
		x.res.Status = executor.StatusKilled
		return
	}
	x.res.Status = executor.StatusFailed
	var f *failure
	var bad *inputError
	switch {
	case errors.As(err, &f):
		x.res.Failure = &f.Failure
	case errors.As(err, &bad):
		x.res.Failure = &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Message: "workspace: " + bad.Error()}
	default:
		x.res.Failure = &executor.Failure{Code: executor.Internal, Phase: executor.PhasePrepare, Message: err.Error()}
	}
}

// prepare makes everything that must be there before the program.
func (x *execution) prepare() (*program, error) {
	cfg, start := x.agent.cfg, x.start
	if start.Network && cfg.InNetworkNamespace {
		return nil, failed(executor.Unimplemented, executor.PhasePrepare, "network: this runner has none")
	}
	var err error
	if x.want, err = parseGlobs(start.Outputs); err != nil {
		return nil, invalid("%v", err)
	}
	if start.Directory != "" && (len(start.Outputs) > 0 || start.OutputsChanged) {
		return nil, invalid("outputs: not together with host_directory: what is made there stays there")
	}
	if err := x.makePlace(); err != nil {
		return nil, err
	}
	if x.agent.inside != nil && len(cfg.Cgroups) == 0 {
		x.group = x.agent.inside.group()
	}
	if start.Workspace {
		if err := x.unpack(); err != nil {
			return nil, err
		}
	}
	p, err := resolve(start, x.folder, cfg, x.firstPy)
	if err != nil {
		return nil, err
	}
	if start.OutputsChanged {
		if x.before, err = snapshot(x.folder.fd()); err != nil {
			return nil, fmt.Errorf("look at the work folder: %w", err)
		}
	}
	if x.isCancelled() {
		return nil, errCancelled
	}
	return p, nil
}

// makePlace takes what was prepared, and makes what was not: the work folder and the control groups.
func (x *execution) makePlace() (err error) {
	cfg, limits := x.agent.cfg, x.start.Limits
	if x.folder, err = x.ahead.takeFolder(limits); err == nil && x.folder == nil {
		x.folder, err = makeFolder(cfg, x.agent.disk, limits.DiskBytes)
	}
	if err == nil {
		err = x.folder.reach(x.start)
	}
	if err != nil {
		return err
	}
	if g := x.ahead.takeGroup(limits); g != nil {
		x.group = g
		g.leaveAhead(x.agent.spawner(x.start.Network))
		return nil
	}
	x.group, err = makeGroup(cfg.Cgroups, x.agent.groupName(), limits)
	return err
}

func (x *execution) unpack() error {
	if x.start.Directory != "" {
		return invalid("host_directory: not together with a workspace")
	}
	last := time.Now()
	e := extractor{
		root: x.folder.root, uid: x.agent.cfg.UID, gid: x.agent.cfg.GID, own: x.agent.cfg.UID != 0,
		maxBytes: x.start.Limits.DiskBytes,
		progress: func(done int64) {
			if time.Since(last) < progressEvery {
				return
			}
			last = time.Now()
			_ = x.agent.out.json(frameProgress, executor.Progress{
				Phase: executor.PhasePrepare, Message: "unpack the workspace", Done: done, Unit: "bytes",
			}) // a broken connection shows in the reader
		},
	}
	err := e.extract(x.workspace)
	x.firstPy = e.firstPy
	return err
}

// runProgram starts the program and sees it to its end.
func (x *execution) runProgram(p *program) error {
	cfg := x.agent.cfg
	io := x.ahead.takePipes(x.start.Stdin)
	if io == nil {
		var err error
		if io, err = makePipes(cfg, x.start.Stdin); err != nil {
			return err
		}
	}
	files := make([]uintptr, len(io.theirs))
	for i, fd := range io.theirs {
		files[i] = uintptr(fd) //nolint:gosec // a descriptor
	}
	got := x.agent.spawner(x.start.Network).start(spawnJob{
		path: p.path, argv: p.argv, env: p.env, dir: p.dir, files: files,
		uid: cfg.UID, gid: cfg.GID, ownUID: cfg.OwnUID, group: x.group, limits: x.start.Limits, inside: x.agent.inside, watched: true,
	})
	io.closeTheirs()
	if got.err != nil {
		io.close()
		if got.ours {
			return failed(executor.Internal, executor.PhaseStart, "start: %v", got.err)
		}
		return startFailure(p, cfg.UID, got.err)
	}
	started := got.at
	x.setPID(got.pid)
	r := newReaper(got.pid, x.agent.guard)
	if got.pidfd >= 0 {
		defer unix.Close(got.pidfd) //nolint:errcheck // nothing was written; the pumps are done by then
	}
	x.agent.started(x, startedFrame{Started: executor.Started{PID: got.pid, Start: executor.StartExec}})

	outs := []*pump{
		newPump(executor.Stdout, io.stdout, x.box, x.start.Limits.OutputBytes),
		newPump(executor.Stderr, io.stderr, x.box, x.start.Limits.OutputBytes),
	}
	open := atomic.Int32{}
	open.Store(int32(len(outs))) //nolint:gosec // two
	for _, o := range outs {
		o.ended = func() {
			if open.Add(-1) == 0 {
				r.soon(got.pidfd)
			}
		}
		x.agent.goGuarded(o.run)
	}
	fed := make(chan struct{})
	x.agent.goGuarded(func() {
		defer close(fed)
		if io.stdin != nil {
			feed(x.stdin, io.stdin)
		}
	})

	s := newSampler(x.group, got.pid, started, x.start.SampleInterval)
	end, reason := x.supervise(got.pid, started, r, s)
	x.setPID(0)
	x.res.Wall = end.at.Sub(started)
	x.finish(r, end)
	x.stdin.abort(errStopped)
	if io.stdin != nil {
		_ = io.stdin.Close() // feed may have closed it
	}
	<-fed
	for _, o := range outs {
		o.drain()
	}
	x.res.Phases.Run = time.Since(started)
	x.res.StdoutBytes, x.res.StdoutTruncated = outs[0].total, outs[0].truncated
	x.res.StderrBytes, x.res.StderrTruncated = outs[1].total, outs[1].truncated
	x.verdict(end, reason)
	x.account(r, s)
	return nil
}

// collect sends the artifacts, unless nobody wants them any more. The error is errResumed or nil.
func (x *execution) collect(out *frameWriter, artifacts *credit) error {
	began := time.Now()
	defer func() { x.res.Phases.Collect = time.Since(began) }()
	if len(x.want) == 0 && x.before == nil || x.isCancelled() {
		return nil
	}
	x.box.expire() // an artifact may take its time
	c := collector{
		out: out, credit: artifacts, want: x.want, before: x.before, maxBytes: x.start.Limits.DiskBytes,
	}
	f, err := c.collect(x.folder.fd())
	if errors.Is(err, errResumed) {
		return errResumed
	}
	if err != nil && !errors.Is(err, errCancelled) {
		x.agent.logf("collect: %v", err)
		f = &executor.Failure{Code: executor.Internal, Phase: executor.PhaseCollect, Message: err.Error()}
	}
	if f != nil {
		if x.res.Failure == nil { // else that one came first
			x.res.Failure = f
		}
		if x.res.Status == executor.StatusSucceeded {
			x.res.Status = executor.StatusFailed // the program did well, but its result is not whole
		}
	}
	return nil
}

// clean gives everything back. It runs after the answer.
func (x *execution) clean() error {
	var err error
	if x.folder != nil {
		err = x.folder.remove() // before the groups: a tmpfs counts in them
	}
	return errors.Join(err, x.group.remove())
}
