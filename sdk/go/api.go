package pyexec

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
)

// Run runs spec and returns the finished Execution with its output. The end of ctx kills the Execution. A failed program is not an
// error. A broken tar is an error (invalid, with the ExecutionID).
func (c *Client) Run(ctx context.Context, spec Spec, in Input) (*Execution, error) {
	var broken bool
	what := submission(ctx, "run", "/api/v1/exec/sync", spec, in)
	what.broken = &broken
	e, err := ask[Execution](ctx, c, what)
	if err == nil && broken && e.Status == StatusKilled {
		// The server kills an Execution whose caller is gone. The answer is that of the same Execution, by its key.
		return nil, &Error{Code: CodeUnavailable, Message: "the connection broke, so the server killed the execution", ExecutionID: e.ExecutionID}
	}
	return pointer(e, err)
}

// Submit starts an Execution of spec and returns its id when the server has everything on disk.
func (c *Client) Submit(ctx context.Context, spec Spec, in Input) (string, error) {
	accepted, err := ask[Accepted](ctx, c, submission(ctx, "submit", "/api/v1/exec/async", spec, in))
	return accepted.ExecutionID, err
}

// submission gives a Spec without an idempotency key one of its own, so that the call may be repeated.
func submission(ctx context.Context, operation, path string, spec Spec, in Input) call {
	if spec.IdempotencyKey == "" {
		spec.IdempotencyKey = "go-" + rand.Text()
	}
	what := call{operation: operation, method: http.MethodPost, idempotent: true}
	spec, in, err := in.complete(ctx, spec)
	if err != nil {
		return what.at(path, err)
	}
	what.upload, err = newUpload(spec, spec.Stdin, in)
	if what.upload != nil && in.Folder != "" {
		what.upload.folder, _ = in.Tar.(io.Closer)
	}
	return what.at(path, err)
}

// RunStream submits spec, calls handle with every Event as it arrives, and returns the Execution with its output. The end of ctx,
// or an error of handle, kills the Execution. RunStream returns that error. handle may be nil.
func (c *Client) RunStream(ctx context.Context, spec Spec, in Input, handle func(Event) error) (*Execution, error) {
	id, err := c.Submit(ctx, spec, in)
	if err != nil {
		return nil, err
	}
	for event, err := range c.Events(ctx, id, 0) {
		if err == nil && handle != nil {
			err = handle(event)
		}
		if err != nil {
			// ctx may have ended, but the Execution must not continue without a caller.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
			defer cancel()
			_, _ = c.Cancel(stop, id) // the first error is the one to tell
			return nil, err
		}
	}
	return c.Get(ctx, id)
}

// Get returns an Execution with its output (so far).
func (c *Client) Get(ctx context.Context, id string) (*Execution, error) {
	return pointer(ask[Execution](ctx, c, get("get", nil).at(executionPath(id, ""))))
}

// Wait waits for the end of an Execution and returns it with its output. The end of ctx ends the wait, not the Execution.
func (c *Client) Wait(ctx context.Context, id string) (*Execution, error) {
	for _, err := range c.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
	}
	return c.Get(ctx, id)
}

// Cancel ends an Execution and returns its status: "killed", or its final status if it had already ended.
func (c *Client) Cancel(ctx context.Context, id string) (status string, err error) {
	answer, err := ask[Cancelled](ctx, c, remove("cancel").at(executionPath(id, "")))
	return answer.Status, err
}

// ListOptions select Executions. The zero value selects all Executions of the caller.
type ListOptions struct {
	Statuses []string `query:"status" enum:"queued,running,succeeded,failed,timed_out,out_of_memory,killed,lost" doc:"Only these statuses. May be given more than once."`
	After    string   `query:"after" pattern:"^(exe_[0-9a-z]{26})?$" patternDescription:"the id of an execution" doc:"next of the page before."`
	Limit    int      `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Maximum number of executions on a page. A page may have fewer; next tells whether another page follows."`
}

// ListPage returns one page, newest first.
func (c *Client) ListPage(ctx context.Context, o ListOptions) (Page, error) {
	return ask[Page](ctx, c, get("list", queryOf(o)).at("/api/v1/executions", nil))
}

// List yields all Executions, newest first. It reads a page at a time. An error ends the sequence.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[Execution, error] {
	return func(yield func(Execution, error) bool) {
		o := o
		for {
			page, err := c.ListPage(ctx, o)
			if err != nil {
				yield(Execution{}, err)
				return
			}
			for _, e := range page.Executions {
				if !yield(e, nil) {
					return
				}
			}
			if page.Next == "" || page.Next == o.After {
				return
			}
			o.After = page.Next
		}
	}
}

// LogsOptions select output. The zero value selects both streams so far.
type LogsOptions struct {
	Stream string `query:"stream" enum:"stdout,stderr,both" default:"both"`
	Follow bool   `query:"follow" default:"false" doc:"Stay until the end."`
}

// Logs returns raw output. The caller closes it.
func (c *Client) Logs(ctx context.Context, id string, o LogsOptions) (io.ReadCloser, error) {
	return c.stream(ctx, get("logs", queryOf(o)).at(executionPath(id, "/logs")))
}

// Artifacts returns all artifacts as a tar (see archive/tar). The caller closes it.
func (c *Client) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.stream(ctx, get("artifacts", nil).at(executionPath(id, "/artifacts")))
}

// Artifact returns the content of one artifact. The caller closes it.
func (c *Client) Artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	var escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nil, invalidField("path", fmt.Sprintf("must be relative, without empty segments, . and .. (got %q)", path))
		}
		escaped.WriteString("/" + url.PathEscape(segment))
	}
	return c.stream(ctx, get("artifact", nil).at(executionPath(id, "/artifacts"+escaped.String())))
}

// Backends describes the server's backends.
func (c *Client) Backends(ctx context.Context) ([]Backend, error) {
	type backends struct {
		Backends []Backend `json:"backends"`
	}
	answer, err := ask[backends](ctx, c, get("backends", nil).at("/api/v1/backends", nil))
	return answer.Backends, err
}

// Health checks that the server is up. It needs no token.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, get("health", nil).at("/healthz", nil))
}

// Ready reports whether the server accepts Executions now. It needs no token, and is not retried.
func (c *Client) Ready(ctx context.Context) (bool, error) {
	what := get("ready", nil).at("/readyz", nil)
	resp, err := c.once(ctx, what) //nolint:bodyclose // closeBody does
	if err == nil {
		closeBody(resp.Body)
		return true, nil
	}
	if CodeOf(err) == CodeUnavailable && ctx.Err() == nil {
		return false, nil
	}
	return false, err
}

// stream makes a call whose answer is bytes.
func (c *Client) stream(ctx context.Context, what call) (io.ReadCloser, error) {
	resp, err := c.do(ctx, what) //nolint:bodyclose // the caller's
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// queryOf returns the query parameters that options sets.
func queryOf(options any) url.Values {
	values := url.Values{}
	v := reflect.ValueOf(options)
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Tag.Get("query"), v.Field(i)
		if list, ok := field.Interface().([]string); ok {
			values[name] = list
		} else if !field.IsZero() {
			values.Set(name, fmt.Sprint(field.Interface()))
		}
	}
	return values
}

// executionPath returns the path of an Execution, followed by rest. An id that cannot be a segment of a path is not found.
func executionPath(id, rest string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "no execution has the id " + strconv.Quote(id)}
	}
	return "/api/v1/executions/" + url.PathEscape(id) + rest, nil
}
