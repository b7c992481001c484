package httpfrontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// heartbeat is how often a look is taken whether an event stream has been silent since the last one, so twice that is the
// longest silence; 15 s are promised.
const heartbeat = 7 * time.Second

// errDraining ends the followers of a server that ends. They can go on at another one.
var errDraining = errors.New("the server is ending")

type drainKey struct{}

// following returns a ctx that also ends when the server begins to drain and id has not finished. The log of one that has
// finished ends by itself, and its reader is to see that.
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
func (f *frontend) events(w http.ResponseWriter, r *http.Request) error {
	after, err := eventsAfter(r)
	if err != nil {
		return err
	}
	id, err := pathID(r)
	if err != nil {
		return err
	}
	e, err := f.svc.Get(r.Context(), id)
	if err != nil {
		return err
	}
	ctx, cancel := f.following(r.Context(), id)
	defer cancel(nil)
	s := &eventStream{w: w, rc: http.NewResponseController(w)}
	if r.Method == http.MethodHead {
		return s.open()
	}
	if after >= e.LastSeq {
		// Nothing is there to send yet. Otherwise the first Event opens the stream, so that one that retention has
		// taken is still a 410.
		if err := s.open(); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	beats, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	wg.Go(func() {
		ticker := time.NewTicker(f.heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-beats.Done():
				return
			case <-ticker.C:
				if err := s.beat(); err != nil {
					cancel(err)
					return
				}
			}
		}
	})
	for event, err := range f.svc.Events(ctx, id, after) {
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
	// A log that is empty behind after, of an Execution that has ended.
	return s.open()
}

// eventsAfter returns the Seq to go on behind. The header is a reconnecting browser's, whose URL still says where it
// began, so it wins.
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

// eventData is the JSON of an Event. What only the Engine may know (Started.Handle) is not in it.
func (f *frontend) eventData(ctx context.Context, e executor.Execution, event executor.Event) ([]byte, error) {
	switch b := event.Body.(type) {
	case executor.Output:
		out := outputData{Stream: b.Stream, Offset: b.Offset, Earlier: b.Earlier}
		if utf8.Valid(b.Data) {
			text := string(b.Data)
			out.Data = &text
		} else {
			out.DataBase64 = b.Data
		}
		return json.Marshal(out)
	case executor.Display:
		return json.Marshal(apijson.DisplayEventOf(b))
	case executor.Started:
		return json.Marshal(startedData{PID: b.PID, PythonVersion: known(b.PythonVersion), Requirements: list0(b.Requirements), Start: known(b.Start)})
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
		return json.Marshal(b)
	}
}

// finishedData is the Result without the output. The Execution is asked for again, because what is known of it now was
// not when the stream began; should it be gone by now, the Event has most of it.
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

// outputData is the data of an Event output: text, or base64 where the piece is not UTF-8.
type outputData struct {
	Stream     executor.Stream `json:"stream"`
	Offset     int64           `json:"offset"`
	Data       *string         `json:"data,omitempty"`
	DataBase64 []byte          `json:"data_base64,omitempty"`
	// Earlier: it was written between this Execution and the one before it in its Session.
	Earlier bool `json:"earlier,omitempty"`
}

// startedData is the data of an Event started.
type startedData struct {
	PID           int                 `json:"pid"`
	PythonVersion *string             `json:"python_version"`
	Requirements  []string            `json:"requirements"`
	Start         *executor.StartKind `json:"start"`
}

// eventStream writes Server-Sent Events, from the log's reader and from the heartbeat.
type eventStream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	rc     *http.ResponseController
	opened bool
	// sent: something was written since the last heartbeat.
	sent bool
}

// open sends the headers, once.
func (s *eventStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

func (s *eventStream) openLocked() error {
	if s.opened {
		return nil
	}
	s.opened = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
	return s.flush()
}

// flush sends what was written. A ResponseWriter that cannot is a test's.
func (s *eventStream) flush() error {
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// beat sends a comment where nothing else was sent.
func (s *eventStream) beat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		s.sent = false
		return nil
	}
	if err := s.openLocked(); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(": waiting\n\n")); err != nil {
		return err
	}
	return s.flush()
}

// send writes one Event.
func (s *eventStream) send(e executor.Event, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return err
	}
	s.sent = true
	kind := strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, strings.ToLower(string(e.Body.Kind())))
	line := make([]byte, 0, len(data)+64)
	line = append(line, "id: "...)
	line = strconv.AppendUint(line, e.Seq, 10)
	line = append(line, "\nevent: "...)
	line = append(line, kind...)
	line = append(line, "\ndata: "...)
	line = append(line, data...)
	line = append(line, "\n\n"...)
	if _, err := s.w.Write(line); err != nil {
		return err
	}
	return s.flush()
}
