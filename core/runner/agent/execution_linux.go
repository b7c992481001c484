package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// progressEvery is the time between two Progress events while a Workspace is unpacked.
const progressEvery = 500 * time.Millisecond

// execution is one Execution in the runner, from Start until nothing of it is left.
type execution struct {
	agent     *agent
	start     protocol.Start
	workspace *protocol.Inbox
	stdin     *protocol.Inbox
	artifacts *protocol.Credit
	box       *output.Outbox
	// sender sends to the host that x's input comes from. It is nil unless hosts come and go.
	sender *protocol.Writer

	cancelled chan struct{} // closed by Cancel
	dropped   chan struct{} // closed when the host is gone for good
	cleaned   chan struct{} // closed when nothing is left
	hurried   chan struct{} // closed when somebody waits for cleaned
	// Where hosts come and go: answered is closed when the Result has been sent, released when no host can ask for it any more.
	answered, released chan struct{}

	cancel, drop, release, answeredOnce, hurry func()
	// force kills what runs in a session at once. It closes forcedNow.
	force     func()
	forcedNow chan struct{}

	mu    sync.Mutex
	pid   int               // while the program runs
	pidfd int               // of pid, or negative
	next  *sandbox.Prepared // for the Execution after this one; from cleaned on

	// The following belong to the goroutine of run.
	folder   *sandbox.Folder
	group    *sandbox.Group
	python   archive.PythonFiles
	outdated *sandbox.Tree // of an Execution before, which nothing uses any more
	layered  bool
	before   map[string]archive.FileID
	want     archive.Globs
	res      executor.Result
	stuck    bool
	prepared *sandbox.Prepared // what the Execution before has prepared; nil: nothing
	forkOf   *sandbox.Program  // what the program for the next fork is like; nil: unknown
	forkPeak int64             // the peak of the main process's memory where no control group knows it, in bytes
	forkBase int64             // what of forkPeak no control group of x may know, in bytes; 0: unknown
	// forkResident is the memory that the copy had before, in bytes; 0 if unknown.
	forkResident int64
	preCPU       time.Duration   // of the PreCommands
	exiting      *sandbox.Reaper // of a main process that gave back its memory when it was seen to exit; nil: it has ended
	display      displaying
	displays     int // sent so far
	// In a session, spared are the runner's children that are not the Command's.
	spared map[int]bool
}

func newExecution(a *agent, start protocol.Start) *execution {
	x := &execution{
		agent: a, start: start,
		artifacts: protocol.NewCredit(protocol.ArtifactWindow),
		cancelled: make(chan struct{}), dropped: make(chan struct{}), cleaned: make(chan struct{}),
		answered: make(chan struct{}), released: make(chan struct{}), hurried: make(chan struct{}),
		group: &sandbox.Group{}, forcedNow: make(chan struct{}),
	}
	var wake func()
	if a.relay != nil {
		wake = a.relay.wake
	}
	x.box = output.NewOutbox(a.out, wake)
	x.workspace = protocol.NewInbox(protocol.WorkspaceWindow, func(n int) { x.grant(protocol.ChannelWorkspace, n) })
	x.stdin = protocol.NewInbox(protocol.StdinWindow, func(n int) { x.grant(protocol.ChannelStdin, n) })
	x.force = sync.OnceFunc(func() { close(x.forcedNow) })
	x.cancel = sync.OnceFunc(func() {
		close(x.cancelled)
		x.workspace.Abort(protocol.ErrCancelled)
	})
	x.drop = sync.OnceFunc(func() {
		close(x.dropped)
		x.workspace.Abort(protocol.ErrCancelled)
		a.mu.Lock()
		x.artifacts.Stop(protocol.ErrCancelled)
		a.mu.Unlock()
		x.box.Close()
		if a.relay != nil {
			a.relay.renew()
		}
	})
	x.release = sync.OnceFunc(func() {
		close(x.released)
		x.artifacts.Stop(errResumed) // a.mu is held
	})
	x.answeredOnce = sync.OnceFunc(func() { close(x.answered) })
	x.hurry = sync.OnceFunc(func() { close(x.hurried) })
	return x
}

// grant tells the host that n bytes of x's input were consumed. No Credit may follow Exited, because the host does not know x
// any more then. Without a relay the Writer decides while it holds its lock, so no Exited comes between the decision and the
// frame.
func (x *execution) grant(c protocol.Channel, n int) {
	p := protocol.CreditPayload(c, n)
	if x.sender != nil {
		_ = x.sender.Send(protocol.FrameCredit, p...) // a broken connection shows in the reader
		return
	}
	_ = x.agent.out.SendIf(func() bool { return x.agent.now() == x }, protocol.FrameCredit, p...) // likewise
}

// run runs the Execution. What the host waits for comes first, cleaning follows the answer.
func (x *execution) run(before *execution) {
	defer close(x.cleaned)
	if before != nil {
		before.awaitCleaned()
		x.prepared = before.takeNext()
	}
	if err := x.leaveForkServer(); err != nil {
		x.agent.Logf("%v", err)
	}
	failure := x.execute()
	if failure != nil {
		x.explain(failure)
	}
	x.workspace.Swallow()
	x.stdin.Swallow()
	x.deliver(failure == nil)
	x.rest()
	if x.exiting != nil {
		x.finish(x.exiting, sandbox.Exit{Alone: true})
		x.dieIfStuck()
	}
	kept, err := x.clean()
	err = errors.Join(err, x.prepared.Remove())
	if err == nil && !x.start.Last && !sandbox.IsClosed(x.dropped) {
		x.prepareNext(kept)
		return
	}
	if err = errors.Join(err, kept.Remove()); err != nil {
		x.agent.Logf("clean up: %v", err)
	}
}

// prepareNext makes what the next Execution will need. kept is what there is already.
func (x *execution) prepareNext(kept *sandbox.Prepared) {
	spawner := x.agent.Spawner(x.start.Network)
	if x.refillFork() {
		spawner = nil // the copy enters the groups itself
	}
	next := sandbox.Prepare(x.agent.Config, x.agent.Disk, x.agent.GroupName(), x.start.Limits, spawner, kept)
	x.startForkServer()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
}

func (x *execution) takeNext() *sandbox.Prepared {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := x.next
	x.next = nil
	return next
}

// execute prepares the program and runs it. After an error the program has not run.
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
	return sandbox.IsClosed(x.cancelled) || sandbox.IsClosed(x.dropped)
}

// explain puts an error that came before the program's start into the Result.
func (x *execution) explain(err error) {
	if x.isCancelled() {
		x.res.Status = executor.StatusKilled
		return
	}
	x.res.Status = executor.StatusFailed
	var f *sandbox.Failure
	var bad *archive.InputError
	switch {
	case errors.As(err, &f):
		x.res.Failure = &f.Failure
	case errors.As(err, &bad):
		x.res.Failure = &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Message: "workspace: " + bad.Error()}
	default:
		x.res.Failure = &executor.Failure{Code: executor.Internal, Phase: executor.PhasePrepare, Message: err.Error()}
	}
}

// prepare makes all that the program needs.
func (x *execution) prepare() (*sandbox.Program, error) {
	cfg, start := x.agent.Config, x.start
	if start.Network && cfg.InNetworkNamespace {
		return nil, sandbox.Failed(executor.Unimplemented, executor.PhasePrepare, "network: not available in this sandbox")
	}
	var err error
	if x.want, err = archive.ParseGlobs(start.Outputs); err != nil {
		return nil, sandbox.Invalid("%v", err)
	}
	if start.Directory != "" && (len(start.Outputs) > 0 || start.OutputsChanged) {
		return nil, sandbox.Invalid("outputs: must not come with host_directory, where files stay anyway")
	}
	x.folder, x.group, err = x.agent.MakePlace(x.prepared, start)
	if err != nil {
		return nil, err
	}
	x.group.LeavePrepared(x.agent.Spawner(start.Network))
	if x.agent.Inside != nil && len(cfg.Cgroups) == 0 {
		x.group = x.agent.Inside.Group()
	}
	if err := x.fill(); err != nil {
		return nil, err
	}
	if err := x.runPreCommands(); err != nil {
		return nil, err
	}
	code, displays := executor.CutDisplaying(start.Code)
	start.Code = code
	p, err := sandbox.Resolve(start, x.folder, cfg, x.python)
	if err == nil && displays && code != "" && start.Directory == "" {
		err = x.makeDisplaying()
	}
	if err != nil {
		return nil, err
	}
	if start.OutputsChanged {
		if x.before, err = archive.Snapshot(x.folder.FD()); err != nil {
			return nil, fmt.Errorf("look at the work folder: %w", err)
		}
	}
	if x.isCancelled() {
		return nil, protocol.ErrCancelled
	}
	return p, nil
}

// fill gives the work folder the files of the Workspace.
func (x *execution) fill() error {
	a, start := x.agent, x.start
	if a.tree != nil && (start.Workspace || a.tree.Name != start.Tree) {
		x.outdated, a.tree = a.tree, nil
	}
	switch {
	case !start.Workspace && start.Tree == "":
		return nil
	case start.Directory != "":
		return sandbox.Invalid("host_directory: must not come with a workspace")
	case !start.Workspace && a.tree == nil:
		return errors.New("the runner does not keep that workspace")
	case !start.Workspace: // it is kept
	case start.Tree == "" || !x.folder.TakesTree():
		return x.unpack(x.folder.Root)
	default:
		l, err := a.Disk.NewTree(start.Tree)
		if err != nil {
			return err
		}
		if err := x.unpack(l.Root); err != nil {
			return errors.Join(err, l.Remove())
		}
		l.Python, a.tree = x.python, l
	}
	x.python, x.layered = a.tree.Python, true
	return x.folder.Lay(a.tree)
}

func (x *execution) unpack(root *os.File) error {
	last := time.Now()
	e := archive.Extractor{
		Root: root, UID: x.agent.Config.UID, GID: x.agent.Config.GID, Own: x.agent.Config.UID != 0,
		MaxBytes: x.start.Limits.DiskBytes,
		Progress: func(done int64) {
			if time.Since(last) < progressEvery {
				return
			}
			last = time.Now()
			_ = x.agent.out.SendJSON(protocol.FrameProgress, executor.Progress{
				Phase: executor.PhasePrepare, Message: "unpack the workspace", Done: done, Unit: "bytes",
			}) // a broken connection shows in the reader
		},
	}
	err := e.Extract(x.workspace)
	x.python = e.Python
	return err
}

// runProgram starts the program and waits for its end.
func (x *execution) runProgram(p *sandbox.Program) error {
	pipes := x.prepared.TakePipes(x.start.Stdin)
	if pipes == nil {
		var err error
		if pipes, err = sandbox.MakePipes(x.agent.Config, x.start.Stdin); err != nil {
			return err
		}
	}
	job := x.job(p, pipes, x.start.Limits)
	job.Watched = true
	got, r, err := x.takeWaiting(p, job)
	if err != nil {
		pipes.Close()
		x.agent.started(x, protocol.Started{Started: executor.Started{PID: got.PID, Start: executor.StartFork}})
		return sandbox.Failed(executor.Internal, executor.PhaseRun, "the program may have begun when its interpreter failed: %v", err)
	}
	how := executor.StartFork
	if r == nil {
		if err := x.writeDriver(); err != nil {
			pipes.Close()
			return err
		}
		how, got = executor.StartExec, x.agent.Spawner(x.start.Network).Start(job)
	}
	if err := x.startError(p, pipes, got); err != nil {
		return err
	}
	x.setPID(got.PID, got.PIDFD)
	if r == nil {
		r = sandbox.NewReaper(x.agent.Sandbox, got.PID)
	}
	if got.PIDFD >= 0 {
		defer unix.Close(got.PIDFD) //nolint:errcheck // nothing was written; the pumps are done by then
	}
	x.agent.started(x, protocol.Started{Started: executor.Started{PID: got.PID, Start: how}, Kept: x.layered})
	carried := x.carry(pipes, p.Notice, func() { r.Soon(got.PIDFD) })
	s := sandbox.NewSampler(x.group, got.PID, got.At, x.start.SampleInterval)
	x.group.Bound = x.agent.Bound(x.group, x.folder, x.start.Limits)
	before := x.killsBefore()
	cpu := x.cpuClock(r)
	end, reason := x.supervise(got.At, r, s, cpu)
	x.group.Bound.End()
	x.setPID(0, -1)
	x.res.Wall = end.At.Sub(got.At)
	switch {
	case end.Early:
		x.exiting, x.forkPeak = r, s.Result()+x.forkResident
	case how == executor.StartFork:
		x.forkPeak = end.MaxRSS
	}
	if !end.Early {
		x.finish(r, end)
	}
	x.res.PeakResidentBytes = end.MaxRSS
	carried.finish()
	x.sendDisplays()
	x.res.Phases.Run = time.Since(got.At)
	x.verdict(end, reason, x.group.OOMKills() > before, x.group.Bound.Full())
	x.account(end, r, s)
	x.nameClock(cpu)
	if end.Lost != nil && reason == executor.StatusUnknown {
		return sandbox.Failed(executor.Internal, executor.PhaseRun, "%v", end.Lost)
	}
	return nil
}

// collect sends the artifacts, unless x was cancelled by SIGTERM. The error is errResumed or nil.
func (x *execution) collect(out *protocol.Writer, artifacts *protocol.Credit) error {
	began := time.Now()
	defer func() { x.res.Phases.Collect = time.Since(began) }()
	if len(x.want) == 0 && x.before == nil || x.isCancelled() && !x.start.Interrupt {
		return nil
	}
	x.box.Expire() // an artifact may take its time
	c := archive.Collector{
		Out: out, Credit: artifacts, Want: x.want, Before: x.before, Layered: x.layered, MaxBytes: x.start.Limits.DiskBytes, Budget: x.start.ArtifactBytes,
	}
	f, err := c.Collect(x.folder.FD())
	if errors.Is(err, errResumed) {
		return errResumed
	}
	if err != nil && !errors.Is(err, protocol.ErrCancelled) {
		x.agent.Logf("collect: %v", err)
		f = &executor.Failure{Code: executor.Internal, Phase: executor.PhaseCollect, Message: err.Error()}
	}
	if f != nil {
		if x.res.Failure == nil { // else that one came first
			x.res.Failure = f
		}
		if x.res.Status == executor.StatusSucceeded {
			x.res.Status = executor.StatusFailed // the program succeeded, but its artifacts are not whole
		}
	}
	return nil
}

// clean removes the folder, and the control groups unless it returns them. It runs after the answer.
func (x *execution) clean() (*sandbox.Prepared, error) {
	x.agent.ForgetConnections()
	var err error
	if x.folder != nil {
		err = x.folder.Remove() // before the groups: a tmpfs counts in them
	}
	kept, held, groupErr := sandbox.Keep(x.group, x.start.Limits)
	if s := x.agent.forks.server; s != nil && s.taken {
		s.keep(held)
	}
	return kept, errors.Join(err, groupErr, x.outdated.Remove())
}
