package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// request is a Submit that was checked.
type request struct {
	owner string
	spec  executor.Spec
	// digest is the Spec's part of the SpecDigest; empty without a key.
	digest  string
	limits  executor.Limits
	backend string
	info    executor.Info
	in      executor.Input
	// session is the one to run in; nil: none.
	session *session
	// script is the block of metadata in spec.Code, requires the version specifier that was found.
	script   detect.Script
	requires string
	// look: the Workspace is to be looked into once it is spooled.
	look bool
}

// identity is the SpecDigest of the request with these inputs; empty without a key, by which alone anybody compares it.
func (r request) identity(workspace, stdin string) string {
	if r.digest == "" {
		return ""
	}
	return joinDigest(r.digest, workspace, stdin)
}

// Submit implements executor.Service.
//
// A sync Submit that finds a free slot streams its input straight to the backend. It holds the slot while it does, for
// at most Deadlines.Prepare; if ctx ends before the input was consumed, its caller has gone and it is killed. At most half
// of the slots are held so, because callers may send slowly. Any other Submit has its input spooled first, and holds a
// place in the queue while it does, for at most Deadlines.Upload; the Execution exists once its input is whole, so a
// Submit that ends before leaves nothing behind.
func (e *Engine) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	req, err := e.check(ctx, spec, in)
	release := func() {}
	if err == nil {
		release, err = e.holdSpec(req.owner, req.spec.Size())
	}
	if err != nil {
		return e.repeated(ctx, spec, in, err)
	}
	defer release()
	inHand, spool := looksInto(req)
	rec := executor.Record{Execution: executor.Execution{
		Owner: req.owner, Spec: req.spec, Status: executor.StatusQueued, Backend: req.backend,
	}}
	x, starts, err := e.reserve(&rec, req, startOf(spec, spool, in))
	if err != nil {
		return e.repeated(ctx, spec, in, err)
	}
	defer func() {
		// A caller's stream or callback that panics is its own matter, but for the place that it holds.
		if value := recover(); value != nil {
			if x.accepting {
				_ = e.stillborn(x, errors.New("its caller's callback panicked"))
			} else {
				x.end()
			}
			panic(value)
		}
	}()
	var refused *executor.Failure
	if inHand {
		if refused, err = e.detectInHand(&req); err != nil {
			x.end()
			return executor.Execution{}, err
		}
		rec.Spec = req.spec
	}
	if starts {
		return e.submitDirect(ctx, x, rec, req, refused)
	}
	req.look = spool
	return e.submitSpooled(ctx, x, rec, req, refused)
}

// check finds everything that is wrong with a request before any place is taken and any input read.
func (e *Engine) check(ctx context.Context, spec executor.Spec, in executor.Input) (request, error) {
	p := executor.PrincipalFrom(ctx)
	if spec.Script == "" || !p.Has(executor.ScopeScripts) { // who may run scripts may run nothing else by that
		if err := needs(p, executor.ScopeExec); err != nil {
			return request{}, err
		}
	}
	if err := e.accepting(); err != nil {
		return request{}, err
	}
	req := request{owner: p.Owner, spec: spec.Clone(), backend: spec.Backend, in: in}
	var denied, invalid problems
	privileged(spec, p, &denied)
	if err := denied.err(executor.Denied); err != nil {
		return request{}, err
	}
	var err error
	if spec.IdempotencyKey != "" {
		if req.digest, err = specDigest(req.owner, spec); err != nil {
			return request{}, e.internal("submit", err)
		}
	}
	if spec.Session != "" {
		return req, e.checkRunInSession(ctx, &req)
	}
	validate(spec, in, &invalid)
	req.limits = e.resolveLimits(spec.Limits, &invalid)
	if req.backend == "" && spec.Script != "" {
		req.backend = e.scriptBackend()
	}
	if req.backend == "" {
		req.backend = e.defaultBackend
	}
	if e.backends[req.backend] == nil {
		invalid.add("backend", "must be one of %v (got %q)", e.names, clip(req.backend, 100))
	}
	detectCode(&req, &invalid)
	if err := invalid.err(executor.Invalid); err != nil {
		return request{}, err
	}
	if req.info, err = e.info(ctx, req.backend); err != nil {
		return request{}, err
	}
	if err := e.offered(&req); err != nil {
		return request{}, err
	}
	return req, nil
}

// offered checks the request against what its backend can do, and chooses a Python that its program asks for.
func (e *Engine) offered(req *request) error {
	var missing problems
	chooseVersion(req, &missing)
	capable(req.spec, req.info, &missing)
	return missing.err(executor.Unimplemented)
}

// startOf says how soon an Execution may start. A Source that can be read again is at hand; another one comes as fast as
// its caller sends it.
func startOf(spec executor.Spec, spool bool, in executor.Input) startKind {
	switch {
	case spec.Durable || spool:
		return startLater
	case atHand(in.Workspace) && atHand(in.Stdin):
		return startNow
	}
	return startArriving
}

func atHand(s *executor.Source) bool { return s == nil || s.Replayable || s.Path != "" }

// arrived notes that x's input is all there, or comes no more.
func (e *Engine) arrived(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue.arrived(x.place)
}

// reserve gives rec its id and a place, or says that there is none. starts: it has a slot already. The ids of a Session's
// Executions are in the order of their turns.
func (e *Engine) reserve(rec *executor.Record, req request, kind startKind) (x *execution, starts bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.acceptingLocked(); err != nil {
		return nil, false, err
	}
	now := time.Now()
	rec.ID, rec.CreatedAt = e.ids.next(now), now.UTC().Round(0)
	x = e.newExecution(*rec, req.limits)
	if s := req.session; s != nil {
		if !s.freeLocked() || s.closing != nil {
			kind = startLater
		}
		if err := s.joinLocked(x, req.in.Stdin != nil); err != nil {
			x.cancel(nil)
			return nil, false, err
		}
	}
	p, why := e.queue.reserve(x.owner, x.backend, kind)
	if p == nil {
		e.metrics.refused.Inc()
		x.turn.leaveLocked()
		x.cancel(nil)
		return nil, false, errFull(why, e.retryAfter())
	}
	if p.state == granted {
		x.turn.takeLocked()
	}
	p.execution, x.place = x, p
	x.state = stateSpooling
	if p.state == granted {
		x.state = stateActive
	}
	e.live[x.id] = x
	return x, p.state == granted, nil
}

// submitDirect starts x now and returns when its input is consumed.
func (e *Engine) submitDirect(ctx context.Context, x *execution, rec executor.Record, req request, refused *executor.Failure) (executor.Execution, error) {
	rec.Attempts = 1
	rec.SpecDigest = req.identity(sourceDigest(req.in.Workspace), sourceDigest(req.in.Stdin))
	existing, err := e.create(ctx, rec)
	if err != nil || existing != nil {
		x.end()
		return e.first(existing, rec.SpecDigest, err)
	}
	if err := e.open(x, 0); err != nil {
		return executor.Execution{}, e.stillborn(x, err)
	}
	hashed := rec.Spec.IdempotencyKey != ""
	x.direct, x.workspace, x.stdin = stream(req.in, hashed)
	defer x.direct.close()
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
	runtime.Gosched() // the run goes first, and on this thread: its program is what everybody waits for
	if req.in.Workspace == nil && req.in.Stdin == nil {
		return visible(accepted), nil
	}
	select {
	case <-x.direct.consumed:
	case <-x.done:
	case <-ctx.Done():
	}
	e.arrived(x)
	// A stream that breaks because its caller has gone is that, whichever is seen first.
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

// noteDigests records of a streamed input what is known only now.
func (e *Engine) noteDigests(x *execution, spec string) {
	ctx, cancel := storeContext(x.ctx)
	defer cancel()
	workspace, stdin := x.direct.digests()
	digest := joinDigest(spec, workspace, stdin)
	_, err := e.store.Update(ctx, x.id, func(r *executor.Record) { r.SpecDigest = digest })
	if err != nil {
		e.log.Warn("digest of an input not kept", "execution", x.id, "error", err)
	}
}

// submitSpooled reads x's input into Blobs and puts x into the queue.
func (e *Engine) submitSpooled(ctx context.Context, x *execution, rec executor.Record, req request, refused *executor.Failure) (executor.Execution, error) {
	input, err := e.receive(ctx, x, req)
	if err != nil {
		x.end()
		return executor.Execution{}, err
	}
	if req.look && refused == nil {
		if refused, err = e.detectSpooled(ctx, &req, input.workspace.Key); err != nil {
			e.dropBlobs(x.id, blobWorkspace, blobStdin)
			x.end()
			return executor.Execution{}, err
		}
		rec.Spec = req.spec
	}
	rec.WorkspaceBlob, rec.StdinBlob = input.workspace.Key, input.stdin.Key
	x.spooled = rec.WorkspaceBlob != "" || rec.StdinBlob != ""
	rec.SpecDigest = req.identity(blobDigest(input.workspace), blobDigest(input.stdin))
	existing, err := e.create(ctx, rec)
	if err != nil || existing != nil {
		e.dropBlobs(x.id, blobWorkspace, blobStdin)
		x.end()
		return e.first(existing, rec.SpecDigest, err)
	}
	e.mu.Lock()
	position := max(0, e.queue.queued-1)
	e.mu.Unlock()
	if err := e.open(x, position); err != nil {
		return executor.Execution{}, e.stillborn(x, err)
	}
	x.tell(req.in, rec.Execution)
	if refused != nil {
		return e.refuse(ctx, x, *refused)
	}
	x.enqueue(false)
	return e.present(ctx, x.id)
}

// receive spools the input of req. It ends with ctx, with x, and after Deadlines.Upload.
func (e *Engine) receive(ctx context.Context, x *execution, req request) (spooled, error) {
	upload, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.ctx, func() { cancel(context.Cause(x.ctx)) })()
	clock := time.AfterFunc(e.deadlines.Upload, func() { cancel(errUploadDeadline) })
	defer clock.Stop()
	return e.spool(upload, x.id, req.in, req.spec.Durable)
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

// repeated answers a Submit that cannot be done now, because of err. If it has been done, under the same key, what has become
// of its Session or its backend since, and how full we are, does not matter.
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

// stillborn ends an Execution that the Store has made and that cannot go on. It returns what its caller gets.
func (e *Engine) stillborn(x *execution, err error) error {
	err = withID(e.internal("start an execution", err), x.id)
	result := failed(executor.StatusLost, executor.CodeOf(err), executor.PhaseQueue, err.Error())
	if !e.spawn(func() { e.finish(x, result) }) {
		x.end()
	}
	return err
}

// refuse ends an Execution whose own files ask for what cannot be.
func (e *Engine) refuse(ctx context.Context, x *execution, f executor.Failure) (executor.Execution, error) {
	e.finish(x, executor.Result{Status: executor.StatusFailed, CPU: -1, Failure: &f})
	return e.present(ctx, x.id)
}

// present is the state of an Execution that was just made.
func (e *Engine) present(ctx context.Context, id string) (executor.Execution, error) {
	ctx, cancel := storeContext(ctx)
	defer cancel()
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return executor.Execution{}, withID(e.internal("submit", err), id)
	}
	return visible(rec.Execution), nil
}
