package pyexec

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// maxDrain is how much of an unread body is read so that its connection can be used again.
const maxDrain = 64 << 10

// call is one operation of the API.
type call struct {
	// operation is the name for the retry hook.
	operation string
	method    string
	// path is escaped, below the base URL.
	path   string
	query  url.Values
	header http.Header
	// idempotent reports whether the call may be repeated.
	idempotent bool
	upload     *upload
	// broken is set when an attempt had no answer; nil: nobody asks.
	broken *bool
	// err is the reason why the call cannot be sent; nil: it can.
	err error
}

func get(operation string, query url.Values) call {
	return call{operation: operation, method: http.MethodGet, query: query, idempotent: true}
}

func post(operation string) call { return call{operation: operation, method: http.MethodPost} }

func remove(operation string) call {
	return call{operation: operation, method: http.MethodDelete, idempotent: true}
}

// at returns the call with a path, or with the reason why there is none.
func (w call) at(path string, err error) call {
	w.path, w.err = path, err
	return w
}

// with returns the call with a JSON body.
func (w call) with(body any) call {
	if w.err == nil {
		w.upload, w.err = jsonUpload(body)
	}
	return w
}

// ask makes a call whose answer is a T in JSON.
func ask[T any](ctx context.Context, c *Client, what call) (out T, err error) {
	resp, err := c.do(ctx, what) //nolint:bodyclose // closeBody does
	if err != nil {
		return out, err
	}
	defer closeBody(resp.Body)
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		if ctx.Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) && !isJSON(resp) {
			return out, foreign(resp, c.base)
		}
		e := c.unreachable(ctx, err)
		e.Status, e.Message = resp.StatusCode, "the server's answer cannot be read: "+err.Error()
		return out, e
	}
	if named, ok := any(out).(interface{ id() string }); ok && named.id() == "" {
		return out, foreign(resp, c.base)
	}
	return out, nil
}

// pointer returns a pointer to an answer, or nil for an error.
func pointer[T any](out T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// do sends the call, repeats it if that is allowed, and returns a successful answer. The caller closes its body.
func (c *Client) do(ctx context.Context, what call) (*http.Response, error) {
	if what.upload != nil && what.upload.folder != nil {
		defer func() { _ = what.upload.folder.Close() }() // only read
	}
	for attempt := 1; ; attempt++ {
		resp, err := c.once(ctx, what)
		if err == nil {
			return resp, nil
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Status == 0 && what.broken != nil {
			*what.broken = true
		}
		again := what.idempotent && retryable(ctx, err) && attempt < c.retry.Attempts
		if again && what.upload != nil {
			again = what.upload.rewind()
		}
		if !again {
			return nil, err
		}
		if err := c.pause(ctx, what.operation, attempt, err); err != nil {
			return nil, err
		}
	}
}

// once sends the call once.
func (c *Client) once(ctx context.Context, what call) (*http.Response, error) {
	if what.err != nil {
		return nil, what.err
	}
	target := *c.base
	target.RawPath = c.base.EscapedPath() + what.path
	path, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: err.Error(), Err: err}
	}
	target.Path, target.RawQuery = path, what.query.Encode()
	req, err := http.NewRequestWithContext(ctx, what.method, target.String(), nil)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: err.Error(), Err: err}
	}
	for key, values := range what.header {
		req.Header[key] = values
	}
	req.Header.Set("User-Agent", c.userAgent)
	if c.token != nil {
		req.Header.Set("Authorization", "Bearer "+c.token())
	}
	if what.upload != nil {
		what.upload.attach(req)
	}
	resp, err := c.http.Do(req) //nolint:bodyclose // closed below or by the caller
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	page := mediaTypeOf(resp) == "text/html" // no answer of the API is one
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 && !page {
		return resp, nil
	}
	defer closeBody(resp.Body)
	return nil, responseError(resp, c.base)
}

// retryable reports whether err is temporary and ctx has not ended.
func retryable(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == CodeUnavailable || e.Status == http.StatusTooManyRequests)
}

// pause waits before the next attempt. The pause doubles and is jittered; the server's Retry-After can make it longer, up to
// MaxDelay.
func (c *Client) pause(ctx context.Context, operation string, attempt int, cause error) error {
	ceiling := c.retry.MinDelay << min(attempt-1, 20)
	if ceiling <= 0 || ceiling > c.retry.MaxDelay {
		ceiling = c.retry.MaxDelay
	}
	delay := ceiling/2 + rand.N(ceiling/2+1) //nolint:gosec // jitter is no secret
	if e, ok := errors.AsType[*Error](cause); ok {
		delay = max(delay, min(e.RetryAfter, c.retry.MaxDelay))
	}
	if c.hook != nil {
		c.hook(Retry{Operation: operation, Attempt: attempt, Delay: delay, Err: cause})
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		e := c.unreachable(ctx, errors.Join(ctx.Err(), cause))
		e.Message += "; the last attempt failed: " + cause.Error()
		return e
	}
}

// closeBody reads the rest of a short body, so that the connection can be used again, and closes it.
func closeBody(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain) // an error here only costs the connection
	_ = body.Close()
}
