package httpfrontend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// execBatch runs a program for many cases and answers with a record for each case as it ends. The end of the request's ctx cancels the cases
// that run.
func (f *frontend) execBatch(w http.ResponseWriter, r *http.Request) error {
	u, err := f.receiveInto(&upload{batch: &pyexec.Batch{}}, w, r)
	if err != nil {
		return err
	}
	defer u.close()
	b := apijson.ToBatch(*u.batch, func(text string) *executor.Source { return textSource([]byte(text)) })
	b.Spec, b.Workspace, b.Stdin, u.batch = u.spec, u.input.Workspace, u.input.Stdin, nil
	var bad executor.Problems
	if b.Check(&bad); bad.Err(executor.Invalid, "", "; ") != nil {
		return in(u.where, bad.Err(executor.Invalid, "", "; "))
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	// A caller that may not read gets the output of its own cases.
	a := &batchAnswer{frontend: f, ctx: executor.WithRequest(ctx), out: bufio.NewWriterSize(w, 8<<10), rc: http.NewResponseController(w), cases: b.Cases}
	stop := func() {}
	defer func() { stop() }()
	summary, err := batch.Run(ctx, f.svc, b, func() {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store, no-transform")
		w.Header().Set("X-Accel-Buffering", "no") // nginx would hold records back
		w.WriteHeader(http.StatusOK)
		_ = a.rc.Flush()
		stop = f.beating(ctx, cancel, a.beat)
	}, func(index int) batch.Watcher { return &caseWatcher{answer: a, index: index} })
	if err != nil {
		return in(u.where, err)
	}
	stop()
	return a.write(func() error {
		raw, err := json.Marshal(batchEnd{apijson.BatchSummaryOf(summary)})
		_, _ = a.out.Write(raw) // the error sticks to the bufio.Writer
		return err
	})
}

// batchAnswer writes the records of a batch. Cases and the heartbeat use it at the same time.
type batchAnswer struct {
	frontend *frontend
	ctx      context.Context
	rc       *http.ResponseController
	cases    []batch.Case

	mu  sync.Mutex
	out *bufio.Writer
	// sent reports whether something was written since the last heartbeat.
	sent bool
}

// write writes a line with what body writes, and sends it.
func (a *batchAnswer) write(body func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writeLocked(body)
}

func (a *batchAnswer) writeLocked(body func() error) error {
	a.sent = true
	if err := body(); err != nil {
		return err
	}
	_ = a.out.WriteByte('\n')
	if err := a.out.Flush(); err != nil {
		return err
	}
	if err := a.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// beat sends an empty line if nothing else was sent since the last heartbeat.
func (a *batchAnswer) beat() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.sent {
		if err := a.writeLocked(func() error { return nil }); err != nil {
			return err
		}
	}
	a.sent = false
	return nil
}

// caseWatcher writes the record of one case.
type caseWatcher struct {
	answer *batchAnswer
	index  int
	seen   capture
}

// Event implements batch.Watcher.
func (c *caseWatcher) Event(e executor.Event) { c.seen.add(e) }

// Ended implements batch.Watcher.
func (c *caseWatcher) Ended(o batch.Outcome) error {
	a := c.answer
	record, err := apijson.CaseOf(o, a.cases[c.index]).MarshalJSON()
	if err != nil {
		return err
	}
	return a.write(func() error {
		if o.Execution == nil || !o.Execution.Status.Terminal() {
			_, _ = a.out.Write(record) // the error sticks to the bufio.Writer
			return nil
		}
		// result is the last member, and it is null.
		_, _ = a.out.Write(bytes.TrimSuffix(record, []byte("null}")))
		var from output = &c.seen
		if c.seen.over {
			executor.NoteSubmitted(a.ctx, o.Execution.ID)
			from = a.frontend.loggedOutput(a.ctx, *o.Execution)
		}
		err := encodeResult(a.out, *o.Execution, from)
		_ = a.out.WriteByte('}')
		return err
	})
}
