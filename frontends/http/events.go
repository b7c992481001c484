package httpfrontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// errDraining ends the followers when the server shuts down. They can continue at another server.
var errDraining = errors.New("the server is stopping")

type drainKey struct{}

// following returns a ctx that also ends when the server begins to drain, unless the Execution has finished. The log of a finished
// Execution ends by itself, and its reader should see that end.
func (f *frontend) following(ctx context.Context, id string) (context.Context, context.CancelCauseFunc) {
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(drain, func() {
		if e, err := f.svc.Get(asked, id); err != nil || !e.Status.Terminal() {
			cancel(errDraining)
		}
	})
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// events serves an Execution's log as Server-Sent Events.
func (f *frontend) events(w http.ResponseWriter, r *http.Request, id string) error {
	after, err := eventsAfter(r)
	if err != nil {
		return err
	}
	e, err := f.svc.Get(r.Context(), id)
	if err != nil {
		return err
	}
	ctx, cancel := f.following(r.Context(), id)
	defer cancel(nil)
	s := newEventStream(w)
	if r.Method == http.MethodHead {
		return s.open()
	}
	if after >= e.LastSeq {
		// There is nothing to send yet. Otherwise the first Event opens the stream, so that a log that retention has removed is
		// still a 410.
		if err := s.open(); err != nil {
			return err
		}
	}
	defer f.beating(ctx, cancel, s.beat)()
	for event, err := range f.svc.Events(executor.WithBorrowedData(ctx), id, after) {
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		data, err := f.eventData(ctx, e, event)
		if err != nil {
			return err
		}
		if err := s.send(event, data); err != nil {
			return nil // the client is gone
		}
	}
	// The Execution has ended, and its log has no Event after the given one.
	return s.open()
}

// eventsAfter returns the Seq of the last Event that the client has. The header has precedence, because a browser that reconnects
// sends it beside the URL of its first request.
func eventsAfter(r *http.Request) (uint64, error) {
	name, where, value := "after", "query", r.URL.Query().Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		name, where, value = "Last-Event-ID", "header", last
	}
	if value == "" {
		return 0, nil
	}
	after, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, in(where, executor.FieldErrorf(executor.Invalid, name, "must be the number of an event"))
	}
	return after, nil
}

// eventData returns the JSON of an Event. Started.Handle, which is the Engine's, is not in it.
func (f *frontend) eventData(ctx context.Context, e executor.Execution, event executor.Event) ([]byte, error) {
	switch b := event.Body.(type) {
	case executor.Finished:
		return f.finishedData(ctx, e, event, b)
	case executor.Unknown:
		if len(b.Raw) == 0 || !json.Valid(b.Raw) {
			return []byte("null"), nil
		}
		var line bytes.Buffer
		err := json.Compact(&line, b.Raw) // a line break would end the data
		return line.Bytes(), err
	default:
		return marshal(apijson.BodyOf(b))
	}
}

// marshal is json.Marshal without the second check of what a json.Marshaler has written, which may be large.
func marshal(v any) ([]byte, error) {
	if m, ok := v.(json.Marshaler); ok {
		return m.MarshalJSON()
	}
	return json.Marshal(v)
}

// finishedData returns the Result without the output. It asks for the Execution again, because e is older than its end. If the
// Execution is already removed, the Event has most of its Result.
func (f *frontend) finishedData(ctx context.Context, e executor.Execution, event executor.Event, b executor.Finished) ([]byte, error) {
	now, err := f.svc.Get(ctx, e.ID)
	switch {
	case err == nil && now.Status.Terminal():
		e = now
	case err != nil && executor.CodeOf(err) != executor.Purged && executor.CodeOf(err) != executor.NotFound:
		return nil, err
	default:
		e.Status, e.Result, e.FinishedAt = b.Result.Status, &b.Result, event.Time
	}
	return summary(e)
}

// summary returns the JSON of a Result without its output.
func summary(e executor.Execution) ([]byte, error) {
	return pyexec.Finished{Execution: apijson.ExecutionOf(e)}.MarshalJSON()
}

// sentEvent describes a Server-Sent Event.
type sentEvent struct {
	ID    string `json:"id" doc:"Number of the event."`
	Event string `json:"event" doc:"Kind of the event."`
	Data  string `json:"data" doc:"JSON."`
}
