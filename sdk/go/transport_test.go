package pyexec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func clientOver(t *testing.T, f roundTrip, opts ...Option) *Client {
	t.Helper()
	c, err := NewClient("http://server", append([]Option{WithHTTPClient(&http.Client{Transport: f})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPausesDoubleUpToTheirBound(t *testing.T) {
	t.Parallel()
	away := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	ways := map[string]func(context.Context, *Client) error{
		"get": func(ctx context.Context, c *Client) error {
			_, err := c.Get(ctx, "exe_1")
			return err
		},
		"events": func(ctx context.Context, c *Client) (err error) {
			for _, err = range c.Events(ctx, "exe_1", 0) { //nolint:revive // the last one counts
			}
			return err
		},
	}
	for name, call := range ways {
		for _, p := range []struct {
			policy   RetryPolicy
			ceilings []time.Duration
		}{
			{RetryPolicy{Attempts: 7, MinDelay: time.Second, MaxDelay: 10 * time.Second}, []time.Duration{1, 2, 4, 8, 10, 10}},
			{RetryPolicy{Attempts: 3, MinDelay: 8 * time.Second}, []time.Duration{8, 8}},
		} {
			synctest.Test(t, func(t *testing.T) {
				var delays []time.Duration
				c := clientOver(t, away, WithRetry(p.policy), WithRetryHook(func(r Retry) { delays = append(delays, r.Delay) }))
				began := time.Now()
				if err := call(t.Context(), c); CodeOf(err) != CodeUnavailable {
					t.Errorf("%s: %v", name, err)
				}
				if len(delays) != len(p.ceilings) {
					t.Fatalf("%s: %d pauses, want %d", name, len(delays), len(p.ceilings))
				}
				sum, jittered := time.Duration(0), false
				for i, d := range delays {
					ceiling := p.ceilings[i] * time.Second
					if d < ceiling/2 || d > ceiling {
						t.Errorf("%s: pause %d is %s, want between %s and %s", name, i+1, d, ceiling/2, ceiling)
					}
					sum, jittered = sum+d, jittered || d != ceiling
				}
				if took := time.Since(began); took != sum || !jittered {
					t.Errorf("%s: it took %s with pauses of %v", name, took, delays)
				}
			})
		}
	}
}

func TestTheAttemptsOfARetryPolicyHaveDefaults(t *testing.T) {
	t.Parallel()
	for asked, want := range map[RetryPolicy]RetryPolicy{
		{}:                               {Attempts: 4, FollowAttempts: 12},
		{Attempts: 1}:                    {Attempts: 1, FollowAttempts: 1},
		{Attempts: 2}:                    {Attempts: 2, FollowAttempts: 12},
		{Attempts: 20}:                   {Attempts: 20, FollowAttempts: 20},
		{Attempts: 5, FollowAttempts: 3}: {Attempts: 5, FollowAttempts: 5},
		{Attempts: 1, FollowAttempts: 3}: {Attempts: 1, FollowAttempts: 3},
	} {
		if got := asked.withDefaults(); got.Attempts != want.Attempts || got.FollowAttempts != want.FollowAttempts {
			t.Errorf("%+v becomes %+v, want %+v", asked, got, want)
		}
	}
}

func TestTheEndOfACallSaysWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		never := WithRetryHook(func(r Retry) { t.Errorf("it tries again after the end of ctx: %+v", r) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gone, leave := context.WithCancelCause(t.Context())
		leave(errors.New("enough"))
		bounded, err := NewClient("http://server", WithHTTPClient(&http.Client{Transport: silent, Timeout: time.Minute}), WithRetry(RetryPolicy{Attempts: 1}))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			client *Client
			ctx    context.Context //nolint:containedctx // of one call
			is     error
			want   string
		}{
			{clientOver(t, silent, never), ctx, context.DeadlineExceeded,
				"http://server: the deadline of the call's context has passed: the server's own limit of a program is config.timeout_seconds"},
			{clientOver(t, silent, never), gone, context.Canceled, "http://server: the call's context has ended: enough"},
			{bounded, t.Context(), context.DeadlineExceeded, "http://server: no whole answer within the Timeout of the http.Client, 1m0s: a context with a deadline bounds a call"},
		} {
			if _, err := c.client.Get(c.ctx, "exe_1"); CodeOf(err) != CodeUnavailable || !errors.Is(err, c.is) || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
		}
	})
}

func TestAPauseThatCtxEndsTellsBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("connection refused")
		c := clientOver(t, func(*http.Request) (*http.Response, error) { return nil, away }, WithRetry(RetryPolicy{MinDelay: time.Hour}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Get(ctx, "exe_1"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, away) {
			t.Errorf("the error is %v, want both the end of ctx and the last failure", err)
		}
	})
}

func TestATooLongMessageEndsEvents(t *testing.T) {
	t.Parallel()
	requests := 0
	c := clientOver(t, func(r *http.Request) (*http.Response, error) {
		requests++
		body := io.MultiReader(strings.NewReader("data: "), io.LimitReader(letters{}, maxMessage+1))
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), Request: r}, nil
	}, WithRetry(RetryPolicy{Attempts: 2, MinDelay: time.Nanosecond}))
	for _, err := range c.Events(t.Context(), "exe_1", 0) {
		if CodeOf(err) != CodeInternal || requests != 1 {
			t.Errorf("got %v after %d requests", err, requests)
		}
	}
}

func TestAnIdleTimeoutOfNothingIsTheDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient("http://server", WithHTTPClient(&http.Client{Transport: &stream{}}), WithIdleTimeout(0), WithRetry(RetryPolicy{Attempts: 1}))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, err := range c.Events(t.Context(), "exe_1", 0) {
			if !errors.Is(err, errIdle) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(began); took != defaultIdleTimeout {
			t.Errorf("it was left after %s", took)
		}
	})
}

func TestAnEmptyTokenAndNoClientAreNone(t *testing.T) {
	t.Parallel()
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer server.Close()
	c, err := NewClient(server.URL, WithToken(""), WithHTTPClient(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if h, err := c.Health(t.Context()); err != nil || !h.OK || header["Authorization"] != nil {
		t.Errorf("%+v, %v, Authorization %q", h, err, header["Authorization"])
	}
}

// watchedBody notes how much is read of it and whether it is closed.
type watchedBody struct {
	io.Reader
	read   int
	ended  bool
	closed bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

func (b *watchedBody) Close() error {
	b.closed = true
	return nil
}

func TestABodyIsReadToItsEndAndClosed(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
	}{
		"an answer":       {http.StatusOK, `{"execution_id":"exe_1"}` + strings.Repeat(" ", 9000)},
		"a failure":       {http.StatusNotFound, "<h1>not found</h1>"},
		"an endless page": {http.StatusNotFound, strings.Repeat("x", 1<<20)},
	} {
		b := &watchedBody{Reader: strings.NewReader(answer.body)}
		c := clientOver(t, func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: answer.status, Body: b, Request: r}, nil
		})
		if _, err := c.Get(t.Context(), "exe_1"); (err == nil) != (answer.status == http.StatusOK) {
			t.Errorf("%s: %v", name, err)
		}
		if short := len(answer.body) < maxDrain; !b.closed || b.ended != short || !short && b.read != maxDrain {
			t.Errorf("%s: %d bytes of %d were read, closed %t", name, b.read, len(answer.body), b.closed)
		}
	}
}

func TestOnlyRedirectsOnTheSameServerAreFollowed(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		id := strings.TrimPrefix(r.URL.Path, "/api/v1/executions/")
		switch {
		case id == "moved":
			http.Redirect(w, r, "exe_1", http.StatusFound)
		case id == "https":
			http.Redirect(w, r, "https://"+r.Host+"/", http.StatusFound)
		case id == "loop" && requests.Load() < 50:
			http.Redirect(w, r, "loop", http.StatusFound)
		default:
			_, _ = io.WriteString(w, `{"execution_id":"exe_1"}`)
		}
	}))
	defer server.Close()
	c, err := NewClient(server.URL, WithRetry(RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if e, err := c.Get(t.Context(), "moved"); err != nil || e.ExecutionID != "exe_1" {
		t.Errorf("a redirect on the same server gives %+v, %v", e, err)
	}
	for id, want := range map[string]int64{"https": 1, "loop": 5} {
		requests.Store(0)
		_, err := c.Get(t.Context(), id)
		if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusFound || requests.Load() != want {
			t.Errorf("%s: %d requests, error %v", id, requests.Load(), err)
		}
	}
}

func TestAnUploadThatWasClosedIsNotReadOn(t *testing.T) {
	t.Parallel()
	source := strings.NewReader("the next attempt reads this")
	body := &uploadBody{reader: source}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := body.Read(make([]byte, 8)); n != 0 || !errors.Is(err, io.ErrClosedPipe) || source.Len() != int(source.Size()) {
		t.Errorf("%d bytes, error %v, %d bytes are left", n, err, source.Len())
	}
}

// oneWay fails to seek once it was read.
type oneWay struct {
	*strings.Reader
	read bool
}

func (o *oneWay) Read(p []byte) (int, error) {
	o.read = true
	return o.Reader.Read(p)
}

func (o *oneWay) Seek(offset int64, whence int) (int64, error) {
	if o.read {
		return 0, errors.New("it does not go back")
	}
	return o.Reader.Seek(offset, whence)
}

// watchedFolder notes whether the tar of a folder is closed.
type watchedFolder struct {
	io.Closer
	closed bool
}

func (w *watchedFolder) Close() error {
	w.closed = true
	return w.Closer.Close()
}

func TestTheFilesOfAFolderAreClosedAfterTheCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte("print(1)"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := clientOver(t, func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusConflict, Body: http.NoBody, Request: r}, nil
	})
	in := Input{Folder: dir}
	for name, what := range map[string]call{
		"a program": submission(t.Context(), "run", "/api/v1/exec/sync", Spec{}, in),
		"a batch":   batchSubmission(t.Context(), Batch{Cases: []Case{{}}}, in),
	} {
		if what.err != nil || what.upload.folder == nil {
			t.Fatalf("%s: nothing to close, error %v", name, what.err)
		}
		folder := &watchedFolder{Closer: what.upload.folder}
		what.upload.folder = folder
		if _, err := c.do(t.Context(), what); CodeOf(err) != CodeConflict || !folder.closed { //nolint:bodyclose // there is none
			t.Errorf("%s: closed %t, error %v", name, folder.closed, err)
		}
	}
	// The caller's own tar stays open.
	if what := submission(t.Context(), "run", "/api/v1/exec/sync", Spec{}, Input{Tar: &watchedBody{Reader: strings.NewReader("")}}); what.upload.folder != nil {
		t.Error("the tar of the caller would be closed")
	}
}

func TestAStreamThatDoesNotGoBackIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, stuck := range []bool{true, false} {
		r := strings.NewReader("the tar")
		source := io.Reader(r)
		if stuck {
			source = &oneWay{Reader: r}
		}
		u := &upload{parts: []part{streamPart(source)}}
		req := &http.Request{Header: http.Header{}}
		u.attach(req)
		if sent, err := io.ReadAll(req.Body); err != nil || string(sent) != "the tar" {
			t.Errorf("%q was sent, %v", sent, err)
		}
		if u.rewind() == stuck {
			t.Errorf("it can be sent again: %t", !stuck)
		}
	}
}
