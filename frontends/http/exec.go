package httpfrontend

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// cancelTime bounds the cancellation of an Execution whose client has disconnected. It is more than the longest grace.
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
	return writeJSON(w, http.StatusAccepted, pyexec.Accepted{ExecutionID: e.ID})
}

// execSync runs a program and answers with its Result. The end of the request's ctx kills the program: the client has disconnected,
// or the server shuts down.
func (f *frontend) execSync(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	u, err := f.receive(w, r)
	if err != nil {
		return err
	}
	defer u.close()
	ctx, cancel := context.WithCancelCause(executor.WithRequest(r.Context()))
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
	// While the body is being sent, net/http does not notice that the client disconnects.
	if !e.Status.Terminal() {
		stop := u.watch(cancel)
		defer stop()
	}
	var seen capture
	finished, err := f.follow(ctx, e, &seen)
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
		return f.writeResult(w, finished, f.loggedOutput(ctx, finished))
	}
	return f.writeResult(w, finished, &seen)
}

// follow waits for the end of e and returns the finished Execution. seen has its output, unless that is too much.
func (f *frontend) follow(ctx context.Context, e executor.Execution, seen *capture) (executor.Execution, error) {
	for event, err := range f.svc.Events(executor.WithBorrowedData(ctx), e.ID, 0) {
		if err != nil {
			return e, err
		}
		if seen.add(event); seen.over {
			break
		}
	}
	if seen.over {
		// The output will be read from the log. No Event comes behind the last number, so this only waits for the end.
		for _, err := range f.svc.Events(ctx, e.ID, math.MaxInt64) {
			if err != nil {
				return e, err
			}
		}
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

// kill cancels an Execution without a client.
func (f *frontend) kill(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if _, err := f.svc.Cancel(ctx, id); err != nil {
		f.log.WarnContext(ctx, "cancel an execution without a client", "execution", id, "request_id", requestID(ctx), "error", err)
	}
}

// blame returns the error of the request if it is the reason why Submit failed or was found while the request was read. Otherwise
// it returns err.
func (u *upload) blame(err error) error {
	if failure := u.failure(); failure != nil {
		return failure
	}
	return in(u.where, err)
}

// verdict returns an error if a finished Execution did not run because of its request.
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
		// An argv that cannot be executed fails in phase start. A requirement that cannot be installed and a command that fails are
		// Results: the request is valid, and its author needs the output of the tools.
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

// answer answers with v, unless there was an error.
func answer(w http.ResponseWriter, err error, v any) error {
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
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
