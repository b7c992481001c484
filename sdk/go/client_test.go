package pyexec_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const done = `{"execution_id":"exe_1","status":"succeeded","exit_code":0,"stdout":"42\n"}`

func TestEachCallIsTheRequestThatTheAPISays(t *testing.T) {
	t.Parallel()
	var got *http.Request
	body := `{}`
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		answerJSON(t, w, body)
	}, pyexec.WithToken("s3cret"), pyexec.WithUserAgent("mine/1"))
	drain := func(r io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		_, err = io.ReadAll(r)
		return errors.Join(err, r.Close())
	}
	ctx := t.Context()
	for _, c := range []struct {
		want string
		body string
		call func() error
	}{
		{"GET /api/v1/executions/exe_1", done, func() error { _, err := c.Get(ctx, "exe_1"); return err }},
		{"GET /api/v1/executions/a%2Fb%3F", done, func() error { _, err := c.Get(ctx, "a/b?"); return err }},
		{"DELETE /api/v1/executions/exe_1", `{"status":"killed"}`, func() error {
			status, err := c.Cancel(ctx, "exe_1")
			if status != "killed" {
				t.Errorf("Cancel says %q", status)
			}
			return err
		}},
		{"GET /api/v1/executions", `{"executions":[],"next":null}`, func() error { _, err := c.ListPage(ctx, pyexec.ListOptions{}); return err }},
		{"GET /api/v1/executions?after=exe_2&limit=7&status=queued&status=running", `{"executions":[],"next":null}`, func() error {
			_, err := c.ListPage(ctx, pyexec.ListOptions{Statuses: []string{"queued", "running"}, After: "exe_2", Limit: 7})
			return err
		}},
		{"GET /api/v1/executions/exe_1/logs", "raw", func() error { return drain(c.Logs(ctx, "exe_1", pyexec.LogsOptions{})) }},
		{"GET /api/v1/executions/exe_1/logs?follow=true&stream=stderr", "raw", func() error {
			return drain(c.Logs(ctx, "exe_1", pyexec.LogsOptions{Stream: "stderr", Follow: true}))
		}},
		{"GET /api/v1/executions/exe_1/artifacts", "tar", func() error { return drain(c.Artifacts(ctx, "exe_1")) }},
		{"GET /api/v1/executions/exe_1/artifacts/out/a%20b%3F.txt", "x", func() error { return drain(c.Artifact(ctx, "exe_1", "out/a b?.txt")) }},
		{"GET /api/v1/backends", `{"backends":[{"name":"uv","type":"uv","healthy":true,"capabilities":{"memory":true}}]}`, func() error {
			backends, err := c.Backends(ctx)
			if len(backends) != 1 || backends[0].Name != "uv" || backends[0].Capabilities["memory"] != true {
				t.Errorf("Backends says %+v", backends)
			}
			return err
		}},
		{"GET /healthz", `{"ok":true,"name":"python-executor","version":"1"}`, func() error {
			h, err := c.Health(ctx)
			if !h.OK || h.Version != "1" {
				t.Errorf("Health says %+v", h)
			}
			return err
		}},
	} {
		body = c.body
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		if request := got.Method + " " + got.URL.RequestURI(); request != c.want {
			t.Errorf("the request is %s, want %s", request, c.want)
		}
		if got.Header.Get("Authorization") != "Bearer s3cret" || !strings.HasPrefix(got.UserAgent(), "mine/1 pyexec-go/") {
			t.Errorf("%s has Authorization %q and User-Agent %q", c.want, got.Header.Get("Authorization"), got.UserAgent())
		}
	}
}

func TestABaseURLMayHaveAPath(t *testing.T) {
	t.Parallel()
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		answerJSON(t, w, done)
	}))
	defer server.Close()
	c, err := pyexec.NewClient(server.URL + "/tools/py%2Fexec/?x=1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if _, err := c.Get(t.Context(), "exe_1"); err != nil || path != "/tools/py%2Fexec/api/v1/executions/exe_1" {
		t.Errorf("the request went to %s, error %v", path, err)
	}
	if text, want := c.String(), "pyexec.Client("+server.URL+"/tools/py%2Fexec)"; text != want {
		t.Errorf("the client is %s, want %s", text, want)
	}
}

func second[T any](_ T, err error) error { return err }

func TestATokenIsNeverPrinted(t *testing.T) {
	t.Parallel()
	c, err := pyexec.NewClient("http://user:s3cret@127.0.0.1:1", pyexec.WithToken("s3cret"), pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	_, failure := c.Get(t.Context(), "exe_1")
	_, badPort := pyexec.NewClient("http://user:s3cret@host:port")
	_, badScheme := pyexec.NewClient("ftp://user:s3cret@host")
	for _, v := range []any{c, *c, &c, []any{c}, failure, badPort, badScheme} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) {
				t.Errorf("%s of a %T is %s", format, v, text)
			}
		}
	}
}

func TestATokenDoesNotFollowARedirectElsewhere(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was asked, with Authorization %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, pyexec.WithToken("s3cret"))
	if _, err := c.Get(t.Context(), "exe_1"); err == nil {
		t.Error("a redirect to another server was followed")
	}
}

func TestOnlyWhatIsIdempotentIsRetried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		status int
		call   func(context.Context, *pyexec.Client) error
		want   int64
	}{
		{"get on 503", 503, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 4},
		{"get on 429", 429, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 4},
		{"get on 502", 502, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 4},
		{"get on 404", 404, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 1},
		{"get on 500", 500, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 1},
		{"get on 413", 413, func(ctx context.Context, c *pyexec.Client) error { return second(c.Get(ctx, "x")) }, 1},
		{"cancel on 503", 503, func(ctx context.Context, c *pyexec.Client) error { return second(c.Cancel(ctx, "x")) }, 4},
		{"submit on 503", 503, func(ctx context.Context, c *pyexec.Client) error {
			return second(c.Submit(ctx, pyexec.Spec{Code: "1"}, pyexec.Input{}))
		}, 4},
		{"run on 503", 503, func(ctx context.Context, c *pyexec.Client) error {
			return second(c.Run(ctx, pyexec.Spec{Code: "1"}, pyexec.Input{}))
		}, 4},
		{"interrupt on 503", 503, func(ctx context.Context, c *pyexec.Client) error { return second(c.InterruptSession(ctx, "x")) }, 1},
		{"submit with a key on 503", 503, func(ctx context.Context, c *pyexec.Client) error {
			return second(c.Submit(ctx, pyexec.Spec{Code: "1", IdempotencyKey: "k"}, pyexec.Input{}))
		}, 4},
		{"submit with a key on 409", 409, func(ctx context.Context, c *pyexec.Client) error {
			return second(c.Submit(ctx, pyexec.Spec{Code: "1", IdempotencyKey: "k"}, pyexec.Input{}))
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var requests, hooks atomic.Int64
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(c.status)
			}, pyexec.WithRetryHook(func(r pyexec.Retry) {
				if hooks.Add(1) != int64(r.Attempt) || r.Err == nil || r.Operation == "" || r.Delay <= 0 || r.Delay > fast.MaxDelay {
					t.Errorf("the hook got %+v", r)
				}
			}))
			err := c.call(t.Context(), client)
			e, ok := errors.AsType[*pyexec.Error](err)
			if !ok || e.Status != c.status {
				t.Errorf("the error is %v", err)
			}
			if requests.Load() != c.want || hooks.Load() != c.want-1 {
				t.Errorf("%d requests and %d calls of the hook, want %d and %d", requests.Load(), hooks.Load(), c.want, c.want-1)
			}
		})
	}
}

func TestARetryEndsWithSuccessAndObeysRetryAfterWithinBounds(t *testing.T) {
	t.Parallel()
	requests := 0
	var delay time.Duration
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answerJSON(t, w, done)
	}, pyexec.WithRetryHook(func(r pyexec.Retry) { delay = r.Delay }))
	if e, err := c.Get(t.Context(), "exe_1"); err != nil || e.Stdout != "42\n" {
		t.Errorf("%+v, %v", e, err)
	}
	if delay != fast.MaxDelay {
		t.Errorf("the pause was %s, want the most that is allowed, %s", delay, fast.MaxDelay)
	}
}

func TestAnUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	// Nobody listens at port 1. A port that was free a moment ago may belong to the server of another test.
	c, err := pyexec.NewClient("http://127.0.0.1:1", pyexec.WithRetry(fast))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), "exe_1")
	if e, ok := errors.AsType[*pyexec.Error](err); !ok || e.Code != pyexec.CodeUnavailable || e.Status != 0 || e.Err == nil {
		t.Errorf("the error is %#v", err)
	}
}

func TestAnAnswerThatIsNotOursIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"html error": func(w http.ResponseWriter, _ *http.Request) { answer(t, w, 502, "text/html", "<h1>bad gateway</h1>") },
		"broken error": func(w http.ResponseWriter, _ *http.Request) {
			answer(t, w, 422, "application/problem+json", `{"code":`)
		},
		"empty success": func(http.ResponseWriter, *http.Request) {},
		"cut success":   func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, `{"execution_id":"e`) },
		"wrong types":   func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, `{"execution_id":5}`) },
	} {
		c := serve(t, handler)
		_, err := c.Get(t.Context(), "exe_1")
		if e, ok := errors.AsType[*pyexec.Error](err); !ok || e.Code == "" || e.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAListGoesThroughAllPagesAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	requests := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Query().Get("status") != "failed" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		switch r.URL.Query().Get("after") {
		case "":
			answerJSON(t, w, `{"executions":[{"execution_id":"e4"},{"execution_id":"e3"}],"next":"e3"}`)
		case "e3":
			answerJSON(t, w, `{"executions":[{"execution_id":"e2"}],"next":null}`)
		default:
			problem(t, w, 422, "invalid")
		}
	})
	var ids []string
	for e, err := range c.List(t.Context(), pyexec.ListOptions{Statuses: []string{"failed"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ExecutionID)
	}
	if strings.Join(ids, " ") != "e4 e3 e2" {
		t.Errorf("listed %v", ids)
	}
	requests = 0
	for range c.List(t.Context(), pyexec.ListOptions{Statuses: []string{"failed"}}) {
		break
	}
	if requests != 1 {
		t.Errorf("%d requests for the first of a list", requests)
	}
	for e, err := range c.List(t.Context(), pyexec.ListOptions{Statuses: []string{"failed"}, After: "bad"}) {
		if pyexec.CodeOf(err) != pyexec.CodeInvalid {
			t.Errorf("got %+v, %v", e, err)
		}
	}
}

// A page whose next page is itself would be asked for without an end.
func TestAListThatDoesNotGoOnEnds(t *testing.T) {
	t.Parallel()
	requests := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests > 2 {
			problem(t, w, 500, "internal")
			return
		}
		answerJSON(t, w, `{"executions":[{"execution_id":"e1"}],"next":"e1"}`)
	})
	for _, err := range c.List(t.Context(), pyexec.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if requests != 2 {
		t.Errorf("%d requests", requests)
	}
}

func TestArtifactsAreATar(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-tar")
		archive := tar.NewWriter(w)
		if err := archive.WriteHeader(&tar.Header{Name: "out.txt", Mode: 0o600, Size: 2}); err != nil {
			t.Error(err)
		}
		if _, err := archive.Write([]byte("hi")); err != nil {
			t.Error(err)
		}
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
	})
	body, err := c.Artifacts(t.Context(), "exe_1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}()
	header, err := tar.NewReader(body).Next()
	if err != nil || header.Name != "out.txt" {
		t.Errorf("%+v, %v", header, err)
	}
}
