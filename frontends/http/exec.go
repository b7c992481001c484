package httpfrontend

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// cancelTime bounds the wait for an Execution whose client has gone: the longest grace, and some.
const cancelTime = 90 * time.Second

// execAsync accepts an Execution and answers with its id.
func (f *frontend) execAsync(w http.ResponseWriter, r *http.Request) error {
	u, err := f.receive(w, r)
	if err != nil {
		return err
	}
	defer u.close()
	u.spec.Durable = true
	e, err := f.svc.Submit(r.Context(), u.spec, u.input)
	if err = u.blame(err); err != nil {
		u.settle()
		return err
	}
	w.Header().Set("Location", "/api/v1/executions/"+e.ID)
	return writeJSON(w, http.StatusAccepted, map[string]string{"execution_id": e.ID})
}

// execSync runs a program and answers with its Result. The end of the request's ctx (the client went away, or the server
// ends) kills it.
func (f *frontend) execSync(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	u, err := f.receive(w, r)
	if err != nil {
		return err
	}
	defer u.close()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	e, err := f.svc.Submit(ctx, u.spec, u.input)
	ours := u.spec.IdempotencyKey == "" || !e.CreatedAt.Before(began)
	u.submitted()
	if err = u.blame(err); err != nil {
		id := e.ID
		if known, ok := errors.AsType[*executor.Error](err); ok && id == "" {
			id = known.ExecutionID
		}
		if id != "" {
			err = about(id, err)
			if ours {
				f.kill(ctx, id)
			}
		}
		u.settle()
		return err
	}
	// A body that is still being sent hides the client's leaving.
	if !e.Status.Terminal() {
		stop := u.watch(cancel)
		defer stop()
	}
	var seen capture
	reading := readingOwn(ctx)
	finished, err := f.follow(reading, e, &seen)
	if err != nil {
		if ours {
			f.kill(ctx, e.ID)
		}
		return about(e.ID, err)
	}
	u.settle()
	if err := u.verdict(finished); err != nil {
		return err
	}
	if seen.over {
		return f.writeResult(w, finished, f.loggedOutput(reading, finished))
	}
	return f.writeResult(w, finished, &seen)
}

// readingOwn lets a caller that may only execute have the Result of what it has just executed.
func readingOwn(ctx context.Context) context.Context {
	p := executor.PrincipalFrom(ctx)
	if p.Has(executor.ScopeRead) {
		return ctx
	}
	p.Scopes = append(slices.Clone(p.Scopes), executor.ScopeRead)
	return executor.WithPrincipal(ctx, p)
}

// follow reads e's log to its end and returns what became of it.
func (f *frontend) follow(ctx context.Context, e executor.Execution, seen *capture) (executor.Execution, error) {
	for event, err := range f.svc.Events(ctx, e.ID, 0) {
		if err != nil {
			return e, err
		}
		seen.add(event)
	}
	if ctx.Err() != nil {
		return e, context.Cause(ctx)
	}
	if e.Status.Terminal() {
		return e, nil
	}
	finished, err := f.svc.Get(ctx, e.ID)
	if err != nil {
		return e, err
	}
	if !finished.Status.Terminal() {
		return e, executor.Errorf(executor.Internal, "the log of %s ended in status %s", e.ID, finished.Status)
	}
	return finished, nil
}

// kill ends an Execution that nobody waits for any more.
func (f *frontend) kill(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if _, err := f.svc.Cancel(ctx, id); err != nil {
		f.log.WarnContext(ctx, "cancel an execution without a client", "execution", id, "request_id", requestID(ctx), "error", err)
	}
}

// blame returns what was wrong with the request if that is why Submit failed, or came out only while it was consumed.
func (u *upload) blame(err error) error {
	if failure := u.failure(); failure != nil {
		return failure
	}
	return in(u.where, err)
}

// verdict says when a finished Execution is an error of its request: nothing of it ran, and the request is why.
func (u *upload) verdict(e executor.Execution) error {
	if e.Status != executor.StatusFailed || e.Result == nil || e.Result.Failure == nil || !e.StartedAt.IsZero() {
		return nil
	}
	failure := *e.Result.Failure
	field := failure.Field
	if field == "" && failure.Code == executor.Invalid && failure.Phase == executor.PhasePrepare {
		field = u.brought
	}
	switch failure.Code {
	case executor.Invalid:
		// An argv that cannot be executed shows in phase start. A requirement that cannot be had and a command that fails are
		// no fault of the request's form, and their author needs what the tools say as a Result.
		prepared := failure.Phase == executor.PhasePrepare && (field == "" || field == "requirements_txt" || field == "pre_commands")
		if prepared || failure.Phase == executor.PhaseStart {
			return nil
		}
	case executor.Unimplemented, executor.Denied:
	default:
		return nil
	}
	err := &executor.Error{Code: failure.Code, Message: failure.Message, ExecutionID: e.ID}
	if field != "" {
		err.Fields = []executor.FieldError{{Field: field, Message: failure.Message}}
	}
	where := u.where
	if field == "tar" {
		where = "multipart"
	}
	return &requestError{where: where, err: err}
}

// writeJSON answers with a small value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client is gone if this fails
	return nil
}
