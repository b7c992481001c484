package engine

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// request is a checked Submit.
type request struct {
	owner string
	spec  executor.Spec
	// digest is the Spec's part of the SpecDigest; empty without a key.
	digest  string
	limits  executor.Limits
	backend string
	tool    string // see executor.WithTool
	// on is the backend of that name. It is not stopped before leave is called.
	on    *backend
	leave func()
	info  executor.Info
	in    executor.Input
	// session is the Session to run in, or nil.
	session *sessions.Session
	// script is the block of metadata in spec.Code; requires is the version specifier that was found.
	script   detect.Script
	requires string
	// look: the Workspace is searched for requirements when it is spooled.
	look bool
}

// identity returns the SpecDigest of the request with these inputs. It is empty without an idempotency key.
func (r request) identity(workspace, stdin string) string {
	if r.digest == "" {
		return ""
	}
	return joinDigest(r.digest, workspace, stdin)
}

// Submit implements executor.Service.
//
// A sync Submit that finds a free slot streams its input straight to the backend. It holds the slot meanwhile, for at most
// Deadlines.Prepare. If ctx ends before the input was consumed, the Execution is killed. At most half of the slots are held by callers
// that are still sending. The input of any other Submit is spooled first, which holds a place in the queue for at most Deadlines.Upload.
// Such an Execution exists when its input is whole, so a Submit that ends earlier leaves nothing behind.
func (e *Engine) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	x, err := e.submit(ctx, spec, in)
	if err == nil {
		executor.NoteSubmitted(ctx, x.ID)
	} else if spec.Script != "" {
		executor.NoteRefusedScript(ctx, e, executor.RefusedScript{
			Tool: cmp.Or(executor.ToolFrom(ctx), "run_script"), Path: spec.Script, Args: spec.Args, Code: executor.CodeOf(err),
		})
	}
	return x, err
}

func (e *Engine) submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	req, err := e.check(ctx, spec, in)
	defer req.leave()
	if err != nil {
		return e.repeated(ctx, spec, in, err)
	}
	inHand, spool := looksInto(req)
	rec := executor.Record{Execution: executor.Execution{
		Owner: req.owner, Spec: req.spec, Status: executor.StatusQueued, Backend: req.backend,
	}}
	x, starts, err := e.reserve(&rec, req, startOf(spec, spool, in))
	if err != nil {
		return e.repeated(ctx, spec, in, err)
	}
	defer func() {
		// A panic of the caller's stream or callback goes on to the caller; the place that it holds is given back first.
		if value := recover(); value != nil {
			if x.accepting {
				_ = e.stillborn(x, errors.New("the callback of the caller panicked"))
			} else {
				x.end()
			}
			panic(value)
		}
	}()
	var refused *executor.Failure
	if inHand {
		if refused, err = e.detect(&req, req.in.Workspace); err != nil {
			x.end()
			return executor.Execution{}, err
		}
		rec.Spec = req.spec
	}
	if x.lasting = lasts(req) || !spool && e.hold(ctx, x, &req); x.lasting {
		x.workspace, x.stdin = req.in.Workspace, req.in.Stdin
	}
	if starts {
		return e.submitDirect(ctx, x, rec, req, refused)
	}
	req.look = spool
	return e.submitSpooled(ctx, x, rec, req, refused)
}

// check finds what is wrong with a request, before a place is taken and input is read. The caller calls leave of the request in any case.
func (e *Engine) check(ctx context.Context, spec executor.Spec, in executor.Input) (request, error) {
	req := request{spec: spec.Clone(), backend: spec.Backend, tool: executor.ToolFrom(ctx), in: in, leave: func() {}}
	p, err := e.authorizeSubmit(ctx, spec)
	if err != nil {
		return req, err
	}
	if err := e.accepting(); err != nil {
		return req, err
	}
	req.owner = p.Owner
	var invalid executor.Problems
	if spec.IdempotencyKey != "" {
		if req.digest, err = specDigest(req.owner, spec); err != nil {
			return req, e.internal("submit", err)
		}
	}
	if spec.Session != "" {
		return req, e.checkRunInSession(ctx, &req)
	}
	if spec.Language == executor.LanguageDefault {
		req.spec.Language = executor.LanguageOf(spec.Entrypoint)
	}
	validate(spec, in, &invalid)
	req.limits = e.resolveLimits(spec.Limits, &invalid)
	if req.backend == "" && spec.Script != "" {
		req.backend = e.scriptBackend()
	}
	now := e.now()
	req.backend = cmp.Or(req.backend, now.defaultBackend)
	if req.on, req.leave = e.backend(req.backend); req.on == nil {
		invalid.Add("backend", "must be one of %v (got %q)", now.names, clip(req.backend, 100))
	}
	detectCode(&req, &invalid)
	if err := invalid.Err(executor.Invalid, "submit", "; "); err != nil {
		return req, err
	}
	if p.Has(executor.ScopeTrusted) { // others have named a folder without links, and a link that came since must not count
		req.spec.HostDirectory = realDirectory(req.spec.HostDirectory)
	}
	if req.info, err = e.infoSoon(ctx, req.on, req.owner, spec.IdempotencyKey); err != nil {
		return req, err
	}
	if err := e.offered(&req); err != nil {
		return req, err
	}
	interpret(&req.spec, &invalid)
	return req, invalid.Err(executor.Invalid, "submit", "; ")
}

// offered checks the request against the capabilities of its backend, and chooses the Python that its program requires.
func (e *Engine) offered(req *request) error {
	var invalid, missing executor.Problems
	chooseVersion(req, &invalid)
	capable(req.spec, req.info, &invalid, &missing)
	if err := invalid.Err(executor.Invalid, "submit", "; "); err != nil {
		return err
	}
	return missing.Err(executor.Unimplemented, "submit", "; ")
}

// startOf says how soon an Execution may start.
func startOf(spec executor.Spec, spool bool, in executor.Input) startKind {
	switch {
	case spec.Durable || spool:
		return startLater
	case atHand(in.Workspace) && atHand(in.Stdin):
		return startNow
	}
	return startArriving
}

// atHand reports whether a Source can be read without waiting for its caller.
func atHand(s *executor.Source) bool { return s == nil || s.Replayable || s.Path != "" }

// lasts reports whether the caller keeps the input of req until the Execution has ended.
func lasts(req request) bool {
	return req.in.Lasting && !req.spec.Durable && replayable(req.in.Workspace) && replayable(req.in.Stdin)
}

func replayable(s *executor.Source) bool { return s == nil || s.Replayable }

// arrived notes that all of x's input is there, or that no more of it comes.
func (e *Engine) arrived(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue.arrived(x.place)
}

// reserve gives rec its id and a place. starts reports whether it has a slot already. The ids of a Session's Executions are in the order
// of their turns.
func (e *Engine) reserve(rec *executor.Record, req request, kind startKind) (x *execution, starts bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.acceptingLocked(); err != nil {
		return nil, false, err
	}
	now := time.Now()
	rec.ID, rec.CreatedAt = e.ids.next(now), now.UTC().Round(0)
	x = e.newExecution(*rec, req.limits, req.on)
	x.anyBackend = req.spec.Backend == ""
	network := req.spec.Network
	if req.session != nil {
		network = req.session.Network()
	}
	x.about = surroundings{
		offline: network != executor.NetworkOn && req.info.Capabilities.NetworkOff, unfed: req.in.Stdin == nil, session: req.session != nil,
		inPlace: req.spec.HostDirectory != "",
	}
	if req.tool != "" {
		x.ctx = executor.WithTool(x.ctx, req.tool)
	}
	place := func(free bool) (bool, error) {
		if !free {
			kind = startLater
		}
		p, why := e.queue.reserve(x.owner, x.on.key, kind)
		if p == nil {
			e.metrics.refused.Inc()
			return false, errFull(why, e.retryAfter())
		}
		p.execution, x.place = x, p
		return p.state == granted, nil
	}
	if x.session = req.session; x.session == nil {
		starts, err = place(true)
	} else {
		x.turn, err = x.session.Join(x, req.in.Stdin != nil, func(free bool) (bool, error) {
			starts, err = place(free)
			return starts, err
		})
	}
	if err != nil {
		x.cancel(nil)
		x.on.Leave()
		if errors.Is(err, sessions.ErrFull) {
			err = errFull(sessions.Full, e.retryAfter())
		}
		return nil, false, err
	}
	x.state = stateSpooling
	if starts {
		x.state = stateActive
	}
	e.live[x.id] = x
	return x, starts, nil
}

// submitDirect starts x, and returns when its input is consumed. Its caller waits for its end, and nobody can follow x once this process is
// killed. So its Record is Relaxed.
func (e *Engine) submitDirect(ctx context.Context, x *execution, rec executor.Record, req request, refused *executor.Failure) (executor.Execution, error) {
	rec.Attempts = 1
	rec.Relaxed = x.relaxed(req)
	rec.SpecDigest = req.identity(sourceDigest(req.in.Workspace), sourceDigest(req.in.Stdin))
	existing, err := e.create(ctx, rec, 0)
	if err != nil || existing != nil {
		x.end()
		return e.first(existing, rec.SpecDigest, err)
	}
	hashed := rec.Spec.IdempotencyKey != "" && !x.lasting
	if !x.lasting {
		x.direct, x.workspace, x.stdin = stream(req.in, hashed)
		defer x.direct.close()
	}
	x.fresh = &rec
	accepted := rec.Execution
	accepted.LastSeq = 1 // Queued
	x.tell(req.in, rec.Execution)
	if refused != nil {
		return e.refuse(ctx, x, *refused)
	}
	if !e.spawn(func() { e.run(x) }) {
		return executor.Execution{}, e.stillborn(x, executor.Errorf(executor.Unavailable, "the server is stopping"))
	}
	runtime.Gosched() // lets the run go first, on this thread: the caller waits for its program
	if x.lasting || req.in.Workspace == nil && req.in.Stdin == nil {
		return visible(accepted), nil
	}
	select {
	case <-x.direct.consumed:
	case <-x.done:
	case <-ctx.Done():
	}
	e.arrived(x)
	// If the caller has gone, its stream breaks, too: the caller's leaving is the reason, whichever is seen first.
	broken := x.direct.failure()
	if ctx.Err() != nil && (broken != nil || !x.direct.isConsumed()) {
		x.stop(errCallerGone)
		return executor.Execution{}, &executor.Error{
			Code: executor.Unavailable, Op: "submit", ExecutionID: x.id,
			Message: "the upload ended early", Err: context.Cause(ctx),
		}
	}
	if broken != nil {
		return executor.Execution{}, withID(broken, x.id)
	}
	if hashed {
		e.noteDigests(x, req.digest)
	}
	return e.present(ctx, x.id)
}

// noteDigests records the digests of a streamed input, which are known when it is consumed.
func (e *Engine) noteDigests(x *execution, spec string) {
	ctx, cancel := calls.StoreContext(x.ctx)
	defer cancel()
	workspace, stdin := x.direct.digests()
	digest := joinDigest(spec, workspace, stdin)
	_, err := e.store.Update(ctx, x.id, func(r *executor.Record) { r.SpecDigest = digest })
	if err != nil {
		e.log.Warn("digest of an input not kept", "execution", x.id, "error", err)
	}
}

// submitSpooled reads x's input into Blobs and puts x into the queue. A lasting input is not read. It ends with this process, so the Record
// of its Execution is Relaxed.
func (e *Engine) submitSpooled(ctx context.Context, x *execution, rec executor.Record, req request, refused *executor.Failure) (executor.Execution, error) {
	var input spooled
	var err error
	if !x.lasting {
		input, err = e.receive(ctx, x, req)
	}
	if err != nil {
		x.end()
		return executor.Execution{}, err
	}
	if req.look && refused == nil {
		if refused, err = e.detectSpooled(ctx, &req, input.workspace.Key); err != nil {
			e.dropInput(x.id)
			x.end()
			return executor.Execution{}, err
		}
		rec.Spec = req.spec
	}
	rec.WorkspaceBlob, rec.StdinBlob = input.workspace.Key, input.stdin.Key
	x.spooled = rec.WorkspaceBlob != "" || rec.StdinBlob != ""
	rec.SpecDigest = req.identity(blobDigest(input.workspace), blobDigest(input.stdin))
	if x.lasting {
		rec.SpecDigest = req.identity(sourceDigest(req.in.Workspace), sourceDigest(req.in.Stdin))
		rec.Relaxed = x.relaxed(req)
	}
	e.mu.Lock()
	position := max(0, e.queue.queued-1)
	e.mu.Unlock()
	existing, err := e.create(ctx, rec, position)
	if err != nil || existing != nil {
		e.dropInput(x.id)
		x.end()
		return e.first(existing, rec.SpecDigest, err)
	}
	x.tell(req.in, rec.Execution)
	if refused != nil {
		return e.refuse(ctx, x, *refused)
	}
	x.enqueue(false)
	return e.present(ctx, x.id)
}

// receive spools the input of req. It ends when ctx or x ends, and after Deadlines.Upload.
func (e *Engine) receive(ctx context.Context, x *execution, req request) (spooled, error) {
	ctx, cancel := e.uploading(ctx, x)
	defer cancel()
	return e.spool(ctx, x.id, x.owner, req.in, req.spec.Durable)
}

// uploading returns a context for reads of the caller's input. It ends when ctx or x ends, and after Deadlines.Upload.
func (e *Engine) uploading(ctx context.Context, x *execution) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := context.AfterFunc(x.ctx, func() { cancel(context.Cause(x.ctx)) })
	clock := time.AfterFunc(e.deadlines.Upload, func() { cancel(errUploadDeadline) })
	return ctx, func() {
		clock.Stop()
		ended()
		cancel(nil)
	}
}

// first answers a Submit whose idempotency key is taken.
func (e *Engine) first(existing *executor.Record, digest string, err error) (executor.Execution, error) {
	if err != nil {
		return executor.Execution{}, err
	}
	if !sameRequest(existing.SpecDigest, digest) {
		conflict := executor.FieldErrorf(executor.Conflict, "idempotency_key", "was used for another request")
		conflict.Op, conflict.ExecutionID = "submit", existing.ID
		return executor.Execution{}, conflict
	}
	return visible(existing.Execution), nil
}

// repeated answers a Submit that is refused with err. If the same request was accepted earlier under the same key, that Execution is the
// answer, whatever the state of its Session, its backend and the queue is now.
func (e *Engine) repeated(ctx context.Context, spec executor.Spec, in executor.Input, err error) (executor.Execution, error) {
	switch executor.CodeOf(err) {
	case executor.Conflict, executor.NotFound, executor.Unavailable, executor.Exhausted:
	default:
		return executor.Execution{}, err
	}
	if spec.IdempotencyKey == "" {
		return executor.Execution{}, err
	}
	owner := executor.PrincipalFrom(ctx).Owner
	existing, findErr := e.store.ByKey(ctx, owner, spec.IdempotencyKey)
	if findErr != nil {
		return executor.Execution{}, err
	}
	digest, digestErr := specDigest(owner, spec)
	if digestErr != nil || !strings.HasPrefix(existing.SpecDigest, digest+" ") {
		return executor.Execution{}, err
	}
	workspace, readErr := readDigest(in.Workspace)
	if readErr != nil {
		return executor.Execution{}, err
	}
	stdin, readErr := readDigest(in.Stdin)
	if readErr != nil {
		return executor.Execution{}, err
	}
	return e.first(&existing, joinDigest(digest, workspace, stdin), nil)
}

// stillborn ends an Execution that is in the Store and cannot go on. It returns the error for its caller.
func (e *Engine) stillborn(x *execution, err error) error {
	err = withID(e.internal("start an execution", err), x.id)
	result := failed(executor.StatusLost, executor.CodeOf(err), executor.PhaseQueue, err.Error())
	if !e.spawn(func() { e.finish(x, result) }) {
		x.end()
	}
	return err
}

// refuse ends an Execution whose own files ask for something that cannot be had.
func (e *Engine) refuse(ctx context.Context, x *execution, f executor.Failure) (executor.Execution, error) {
	e.finish(x, executor.Result{Status: executor.StatusFailed, CPU: -1, Failure: &f})
	return e.present(ctx, x.id)
}

// present returns the state of an Execution that was just made.
func (e *Engine) present(ctx context.Context, id string) (executor.Execution, error) {
	ctx, cancel := calls.StoreContext(ctx)
	defer cancel()
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return executor.Execution{}, withID(e.internal("submit", err), id)
	}
	return visible(rec.Execution), nil
}
