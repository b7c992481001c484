package pyexec

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Run runs spec and returns how it ended, with its output. The end of ctx kills the Execution. A failed program is not an
// error; a broken tar is (invalid, with the ExecutionID).
func (c *Client) Run(ctx context.Context, spec Spec, in Input) (*Execution, error) {
	var e Execution
	if err := c.submit(ctx, "run", "/api/v1/exec/sync", spec, in, &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// Submit has spec run and returns its Execution's id when the server has everything on disk.
func (c *Client) Submit(ctx context.Context, spec Spec, in Input) (string, error) {
	var accepted struct {
		ExecutionID string `json:"execution_id"`
	}
	if err := c.submit(ctx, "submit", "/api/v1/exec/async", spec, in, &accepted); err != nil {
		return "", err
	}
	return accepted.ExecutionID, nil
}

func (c *Client) submit(ctx context.Context, operation, path string, spec Spec, in Input, out any) error {
	u, err := newUpload(spec, in)
	if err != nil {
		return err
	}
	return c.json(ctx, call{operation: operation, method: http.MethodPost, path: path,
		idempotent: spec.IdempotencyKey != "", upload: u}, out)
}

// RunStream submits spec, hands every Event to handle as it comes, and returns the Execution with its output. The end of
// ctx and an error of handle kill the Execution; that error is returned.
func (c *Client) RunStream(ctx context.Context, spec Spec, in Input, handle func(Event) error) (*Execution, error) {
	id, err := c.Submit(ctx, spec, in)
	if err != nil {
		return nil, err
	}
	for event, err := range c.Events(ctx, id, 0) {
		if err == nil {
			err = handle(event)
		}
		if err != nil {
			// ctx may be what ended; the Execution must not run on for nobody.
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
	path, err := executionPath(id, "")
	if err != nil {
		return nil, err
	}
	var e Execution
	if err := c.json(ctx, get("get", path, nil), &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// Cancel ends an Execution and returns its status: "killed", or how it had already ended.
func (c *Client) Cancel(ctx context.Context, id string) (status string, err error) {
	path, err := executionPath(id, "")
	if err != nil {
		return "", err
	}
	var answer struct {
		Status string `json:"status"`
	}
	err = c.json(ctx, call{operation: "cancel", method: http.MethodDelete, path: path, idempotent: true}, &answer)
	return answer.Status, err
}

// ListOptions select Executions; the zero value is all of one's own.
type ListOptions struct {
	// Statuses keeps only these; empty: all.
	Statuses []string
	// After is the id of the last Execution of the page before.
	After string
	// Limit is the size of a page; 0 = the server's default.
	Limit int
}

// Page is a part of a list.
type Page struct {
	// Executions have no output.
	Executions []Execution `json:"executions"`
	// Next is the After of the next page; empty: this is the last.
	Next string `json:"next"`
}

// ListPage returns one page, newest first.
func (c *Client) ListPage(ctx context.Context, o ListOptions) (Page, error) {
	query := url.Values{}
	if len(o.Statuses) > 0 {
		query["status"] = o.Statuses
	}
	if o.After != "" {
		query.Set("after", o.After)
	}
	if o.Limit > 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	var page Page
	err := c.json(ctx, get("list", "/api/v1/executions", query), &page)
	return page, err
}

// List goes through all Executions, newest first, a page at a time. An error ends it.
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

// LogsOptions select output; the zero value is both streams so far.
type LogsOptions struct {
	// Stream is "stdout", "stderr" or "both" (default).
	Stream string
	// Follow goes on until the Execution ends.
	Follow bool
}

// Logs returns raw output. The caller closes it.
func (c *Client) Logs(ctx context.Context, id string, o LogsOptions) (io.ReadCloser, error) {
	query := url.Values{}
	if o.Stream != "" {
		query.Set("stream", o.Stream)
	}
	if o.Follow {
		query.Set("follow", "true")
	}
	return c.stream(ctx, "logs", id, "/logs", query)
}

// Artifacts returns what was kept as a tar (see archive/tar). The caller closes it.
func (c *Client) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.stream(ctx, "artifacts", id, "/artifacts", nil)
}

// Artifact returns the content of one file that was kept. The caller closes it.
func (c *Client) Artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	var escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nil, &Error{Code: CodeInvalid, Message: "the artifact's path must be relative and clean"}
		}
		escaped.WriteString("/" + url.PathEscape(segment))
	}
	return c.stream(ctx, "artifact", id, "/artifacts"+escaped.String(), nil)
}

// Backends describes the server's backends.
func (c *Client) Backends(ctx context.Context) ([]Backend, error) {
	var answer struct {
		Backends []Backend `json:"backends"`
	}
	err := c.json(ctx, get("backends", "/api/v1/backends", nil), &answer)
	return answer.Backends, err
}

// Health asks whether the server lives. It needs no token.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	err := c.json(ctx, get("health", "/healthz", nil), &h)
	return h, err
}

func (c *Client) stream(ctx context.Context, operation, id, rest string, query url.Values) (io.ReadCloser, error) {
	path, err := executionPath(id, rest)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, get(operation, path, query)) //nolint:bodyclose // the caller's
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func get(operation, path string, query url.Values) call {
	return call{operation: operation, method: http.MethodGet, path: path, query: query, idempotent: true}
}

// executionPath is the path of an Execution, or of something of its. An id that is no segment of a path names nothing.
func executionPath(id, rest string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "no execution has the id " + strconv.Quote(id)}
	}
	return "/api/v1/executions/" + url.PathEscape(id) + rest, nil
}
