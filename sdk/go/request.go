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
	// operation names it to the retry hook.
	operation string
	method    string
	// path is escaped, below the base URL.
	path   string
	query  url.Values
	header http.Header
	// idempotent: it may be repeated.
	idempotent bool
	upload     *upload
}

// do sends the call, again where that is allowed, and returns an answer of success, whose body the caller closes.
func (c *Client) do(ctx context.Context, what call) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := c.once(ctx, what)
		if err == nil {
			return resp, nil
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
		return nil, unreachable(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp, nil
	}
	defer closeBody(resp.Body)
	return nil, responseError(resp)
}

// json makes the call and decodes its answer into out.
func (c *Client) json(ctx context.Context, what call, out any) error {
	resp, err := c.do(ctx, what) //nolint:bodyclose // closeBody does
	if err != nil {
		return err
	}
	defer closeBody(resp.Body)
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return broken(ctx, resp.StatusCode, err)
	}
	return nil
}

// broken says that an answer began well and could not be read.
func broken(ctx context.Context, status int, err error) *Error {
	e := unreachable(ctx, err)
	e.Status, e.Message = status, "the server's answer cannot be read: "+err.Error()
	return e
}

// retryable: err is of the kind that may pass, and ctx has not ended.
func retryable(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == CodeUnavailable || e.Status == http.StatusTooManyRequests)
}

// pause waits before the next attempt: full jitter over a doubling delay, or what the server asked for, within bounds.
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
		return unreachable(ctx, errors.Join(ctx.Err(), cause))
	}
}

// closeBody reads the rest of a short body, so that the connection can be used again, and closes it.
func closeBody(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain) // an error here only costs the connection
	_ = body.Close()
}
