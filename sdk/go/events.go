package pyexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// cancelPatience bounds the Cancel of an Execution without a caller.
const cancelPatience = 15 * time.Second

var (
	errIdle  = errors.New("the event stream was silent for too long")
	errEarly = errors.New("the event stream ended before the execution")
)

// Events yields the Events of an Execution's log with a Seq greater than after, follows the log, and ends after Finished. It
// resumes after a broken or silent connection and over a restart of the server, within the RetryPolicy. An attempt that brings an Event
// resets the count of attempts. No Event is yielded twice. An error, such as the end of ctx, ends the sequence.
func (c *Client) Events(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &follower{client: c, id: id, first: after, last: after, yield: yield}
		if err := f.run(ctx); err != nil {
			yield(Event{}, err)
		}
	}
}

// follower is the state of one range over Events.
type follower struct {
	client *Client
	id     string
	// last is the Seq of the last Event that was yielded; first, while it is last, means that none was.
	first, last uint64

	yield func(Event, error) bool
	// done reports whether Finished was yielded or yield returned false.
	done bool
}

func (f *follower) run(ctx context.Context) error {
	failures := 0
	ended := false
	for {
		before := f.last
		err := f.connect(ctx)
		if f.done {
			return nil
		}
		if ctx.Err() != nil {
			return f.client.unreachable(ctx, errors.Join(ctx.Err(), err))
		}
		if errors.Is(err, errEarly) && f.last == before {
			// If the Execution had already ended, no Event follows last.
			if ended {
				return nil
			}
			if e, getErr := f.client.Get(ctx, f.id); getErr == nil && e.Finished() {
				ended = true
				continue
			}
		}
		if !retryable(ctx, err) {
			return err
		}
		if f.last != before {
			failures, ended = 0, false
		}
		failures++
		operation, attempts := "events", f.client.retry.Attempts
		if f.last > f.first {
			operation, attempts = "resume", f.client.retry.FollowAttempts
		}
		if failures >= attempts {
			return err
		}
		if err := f.client.pause(ctx, operation, failures, err); err != nil {
			return err
		}
	}
}

// connect makes one connection and yields its Events.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	what := get("events", nil).at(executionPath(f.id, "/events"))
	what.header = http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-cache"}}
	if f.last > 0 {
		what.header.Set("Last-Event-ID", strconv.FormatUint(f.last, 10))
	}
	resp, err := f.client.once(ctx, what)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if mediaTypeOf(resp) != "text/event-stream" {
		return foreign(resp, f.client.base)
	}
	for message, err := range messages(newIdleReader(resp.Body, f.client.idle, cancel)) {
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
				err = cause
			}
			if errors.Is(err, errTooLong) {
				return &Error{Code: CodeInternal, Status: resp.StatusCode, Message: err.Error(), Err: err}
			}
			return &Error{Code: CodeUnavailable, Message: err.Error(), Err: err}
		}
		if err := f.take(message); err != nil || f.done {
			return err
		}
	}
	return &Error{Code: CodeUnavailable, Message: errEarly.Error(), Err: errEarly}
}

// take yields the Event of one message of the stream.
func (f *follower) take(m message) error {
	seq, err := strconv.ParseUint(m.id, 10, 64)
	if err != nil || m.event == "" { // not an Event of the log
		return nil
	}
	if seq <= f.last {
		return nil
	}
	if seq != f.last+1 {
		return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("the event stream jumped from %d to %d", f.last, seq)}
	}
	body, err := decodeBody(m.event, m.data)
	if err != nil {
		return &Error{Code: CodeInternal, Message: fmt.Sprintf("event %d cannot be read: %v", seq, err), Err: err}
	}
	f.last = seq
	_, finished := body.(Finished)
	f.done = finished
	if !f.yield(Event{Seq: seq, Body: body}, nil) {
		f.done = true
	}
	return nil
}

// idleReader cancels the request when a Read blocks for too long. Time between Reads does not count.
type idleReader struct {
	reader io.Reader
	idle   time.Duration
	timer  *time.Timer
}

func newIdleReader(r io.Reader, idle time.Duration, cancel context.CancelCauseFunc) *idleReader {
	timer := time.AfterFunc(idle, func() { cancel(errIdle) })
	timer.Stop()
	return &idleReader{reader: r, idle: idle, timer: timer}
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.idle)
	defer r.timer.Stop()
	return r.reader.Read(p)
}
