package pyexec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const aSession = `{"session_id":"ctx-1","name":"n","status":"active","language":"python"}`

func TestEachCallOfASessionIsTheRequestThatTheAPISays(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var sent []byte
	body, status := "", 200
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
		w.Header().Set("X-File-Mode", "0755")
		answer(t, w, status, "application/json", body)
	}, pyexec.WithToken("s3cret"))
	ctx := t.Context()
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v", what, got, want)
		}
	}
	for _, c := range []struct {
		want, sent string
		status     int
		body       string
		call       func() error
	}{
		{"POST /api/v1/sessions", `{}`, 201, aSession, func() error {
			s, err := c.OpenSession(ctx, pyexec.SessionSpec{})
			same("the session", s, &pyexec.Session{SessionID: "ctx-1", Name: "n", Status: pyexec.SessionActive, Language: "python"})
			return err
		}},
		{"POST /api/v1/sessions", `{"name":"n","description":"d","language":"shell","python_version":"3.12","docker_image":"i","requirements_txt":"r","pre_commands":["p"],"env":{"A":"b"},` +
			`"config":{"network_disabled":false,"memory_mb":5},"backend":"uv","idle_timeout_seconds":1.5,"max_life_seconds":3}`, 201, aSession, func() error {
			_, err := c.OpenSession(ctx, pyexec.SessionSpec{Name: "n", Description: "d", Language: "shell", PythonVersion: "3.12", DockerImage: "i", RequirementsTxt: "r", PreCommands: []string{"p"},
				Env: map[string]string{"A": "b"}, Config: pyexec.Config{NetworkDisabled: new(false), MemoryMB: 5}, Backend: "uv", IdleTimeoutSeconds: 1.5, MaxLifeSeconds: 3})
			return err
		}},
		{"GET /api/v1/sessions", "", 200, `{"sessions":[` + aSession + `]}`, func() error {
			list, err := c.Sessions(ctx)
			same("the number", len(list), 1)
			return err
		}},
		{"GET /api/v1/sessions/ctx-1", "", 200, aSession, func() error { return second(c.Session(ctx, "ctx-1")) }},
		{"GET /api/v1/sessions/a%2Fb%3F", "", 200, aSession, func() error { return second(c.Session(ctx, "a/b?")) }},
		{"POST /api/v1/exec/sync", `{"code":"x + 1","session_id":"ctx-1"}`, 200, done, func() error { return second(c.RunInSession(ctx, "ctx-1", "x + 1")) }},
		{"POST /api/v1/sessions/ctx-1/interrupt", "", 200, aSession, func() error { return second(c.InterruptSession(ctx, "ctx-1")) }},
		{"POST /api/v1/sessions/ctx-1/restart", `{"wipe":true}`, 200, aSession, func() error { return second(c.RestartSession(ctx, "ctx-1", true)) }},
		{"DELETE /api/v1/sessions/ctx-1", "", 200, `{"status":"closed"}`, func() error {
			status, err := c.CloseSession(ctx, "ctx-1")
			same("the status", status, pyexec.SessionClosed)
			return err
		}},
		{"GET /api/v1/sessions/ctx-1/variables", "", 200, `{"variables":[{"name":"x","type":"int","preview":"1"}]}`, func() error {
			list, err := c.Variables(ctx, "ctx-1")
			same("the variables", list, []pyexec.Variable{{Name: "x", Type: "int", Preview: "1"}})
			return err
		}},
		{"POST /api/v1/sessions/ctx-1/requirements", `{"requirements_txt":"idna"}`, 200, `{"resolved_requirements":["idna==3.10"]}`, func() error {
			list, err := c.AddRequirements(ctx, "ctx-1", "idna")
			same("the list", list, []string{"idna==3.10"})
			return err
		}},
		{"GET /api/v1/sessions/ctx-1/files", "", 200, `{"files":[]}`, func() error { return second(c.ListFiles(ctx, "ctx-1", "", false)) }},
		{"GET /api/v1/sessions/ctx-1/files?path=a+b%2Fc&recursive=true", "", 200, `{"files":[{"path":"a b/c/d","directory":false,"size_bytes":3,"mode":420,"mod_time":"2026-11-21T12:00:00Z"}]}`, func() error {
			list, err := c.ListFiles(ctx, "ctx-1", "a b/c", true)
			same("the files", list, []pyexec.File{{Path: "a b/c/d", SizeBytes: 3, Mode: 0o644, ModTime: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}})
			return err
		}},
		{"PUT /api/v1/sessions/ctx-1/files/d%C3%A9j%C3%A0%20vu/100%25%3F%23.txt", "content", 200, `{"path":"x","size_bytes":7}`, func() error {
			f, err := c.UploadFile(ctx, "ctx-1", "déjà vu/100%?#.txt", strings.NewReader("content"))
			same("the size", f.SizeBytes, int64(7))
			return err
		}},
		{"PUT /api/v1/sessions/ctx-1/files/empty", "", 200, `{"path":"empty"}`, func() error { return second(c.UploadFile(ctx, "ctx-1", "empty", nil)) }},
		{"GET /api/v1/sessions/ctx-1/files/a/b", "", 200, "content", func() error {
			f, r, err := c.DownloadFile(ctx, "ctx-1", "a/b")
			if err != nil {
				return err
			}
			raw, err := io.ReadAll(r)
			same("the content", string(raw), "content")
			same("the file", f, pyexec.File{Path: "a/b", SizeBytes: 7, Mode: 0o755, ModTime: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)})
			return errors.Join(err, r.Close())
		}},
		{"DELETE /api/v1/sessions/ctx-1/files/a/b", "", 204, "", func() error { return c.RemoveFile(ctx, "ctx-1", "a/b") }},
	} {
		body, status = c.body, c.status
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		if request := got.Method + " " + got.URL.RequestURI(); request != c.want || string(ownKey.ReplaceAll(sent, nil)) != c.sent {
			t.Errorf("the request is %s %s,\nwant %s %s", request, sent, c.want, c.sent)
		}
		contentType := got.Header.Get("Content-Type")
		if want := map[bool]string{true: "application/json"}[strings.HasPrefix(c.sent, "{")]; want != "" && contentType != want || got.Method == http.MethodPut && contentType != "application/octet-stream" {
			t.Errorf("%s has Content-Type %q", c.want, contentType)
		}
		if got.Header.Get("Authorization") != "Bearer s3cret" {
			t.Errorf("%s has no token", c.want)
		}
	}
}

func TestBadNamesOfSessionsAndFilesAreErrorsWithoutARequest(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request %s", r.URL) })
	ctx := t.Context()
	for _, id := range []string{"", ".", ".."} {
		for _, err := range []error{second(c.Session(ctx, id)), second(c.InterruptSession(ctx, id)), second(c.RestartSession(ctx, id, false)), second(c.CloseSession(ctx, id)),
			second(c.Variables(ctx, id)), second(c.AddRequirements(ctx, id, "x")), second(c.ListFiles(ctx, id, "", false)), second(c.UploadFile(ctx, id, "f", nil)), c.RemoveFile(ctx, id, "f")} {
			if pyexec.CodeOf(err) != pyexec.CodeNotFound {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	// An id that was not set must not mean a sandbox of its own.
	if _, err := c.RunInSession(ctx, "", "1"); pyexec.CodeOf(err) != pyexec.CodeNotFound {
		t.Error(err)
	}
	for _, path := range []string{"", ".", "..", "../x", "a/../b", "/etc/passwd", "a//b", "a/", "a/./b", "a\x00b", "\xff"} {
		_, _, download := c.DownloadFile(ctx, "ctx-1", path)
		for _, err := range []error{download, second(c.UploadFile(ctx, "ctx-1", path, nil)), c.RemoveFile(ctx, "ctx-1", path)} {
			e, ok := errors.AsType[*pyexec.Error](err)
			if !ok || e.Code != pyexec.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Field != "path" {
				t.Errorf("%q: %v", path, err)
			}
		}
	}
}

// ownKey is the idempotency key that the client gives a Spec without one.
var ownKey = regexp.MustCompile(`"idempotency_key":"go-[A-Z2-7]{26}",`)

func TestOfASessionOnlyWhatIsIdempotentIsRetried(t *testing.T) {
	t.Parallel()
	type call = func(context.Context, *pyexec.Client) error
	once := map[string]call{
		"open": func(ctx context.Context, c *pyexec.Client) error {
			return second(c.OpenSession(ctx, pyexec.SessionSpec{}))
		},
		"interrupt": func(ctx context.Context, c *pyexec.Client) error { return second(c.InterruptSession(ctx, "x")) },
		"restart":   func(ctx context.Context, c *pyexec.Client) error { return second(c.RestartSession(ctx, "x", false)) },
		"upload that cannot be sent again": func(ctx context.Context, c *pyexec.Client) error {
			return second(c.UploadFile(ctx, "x", "f", io.MultiReader(strings.NewReader("once"))))
		},
	}
	again := map[string]call{
		"run":       func(ctx context.Context, c *pyexec.Client) error { return second(c.RunInSession(ctx, "x", "1")) },
		"get":       func(ctx context.Context, c *pyexec.Client) error { return second(c.Session(ctx, "x")) },
		"list":      func(ctx context.Context, c *pyexec.Client) error { return second(c.Sessions(ctx)) },
		"close":     func(ctx context.Context, c *pyexec.Client) error { return second(c.CloseSession(ctx, "x")) },
		"variables": func(ctx context.Context, c *pyexec.Client) error { return second(c.Variables(ctx, "x")) },
		"require":   func(ctx context.Context, c *pyexec.Client) error { return second(c.AddRequirements(ctx, "x", "y")) },
		"files":     func(ctx context.Context, c *pyexec.Client) error { return second(c.ListFiles(ctx, "x", "", false)) },
		"upload": func(ctx context.Context, c *pyexec.Client) error {
			return second(c.UploadFile(ctx, "x", "f", strings.NewReader("again")))
		},
		"remove": func(ctx context.Context, c *pyexec.Client) error { return c.RemoveFile(ctx, "x", "f") },
		"download": func(ctx context.Context, c *pyexec.Client) error {
			_, _, err := c.DownloadFile(ctx, "x", "f")
			return err
		},
	}
	all := maps.Clone(once)
	maps.Copy(all, again)
	for name, call := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if raw, err := io.ReadAll(r.Body); err != nil || name == "upload" && string(raw) != "again" {
					t.Errorf("the body is %q, %v", raw, err)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			want := int64(1)
			if again[name] != nil {
				want = int64(fast.Attempts)
			}
			if err := call(t.Context(), c); pyexec.CodeOf(err) != pyexec.CodeUnavailable || requests.Load() != want {
				t.Errorf("%d requests, want %d, error %v", requests.Load(), want, err)
			}
		})
	}
}

func TestErrorsOfASessionAreTyped(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]string{404: "not_found", 409: "conflict", 413: "exhausted", 422: "invalid", 501: "unimplemented"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { problem(t, w, status, code) })
		for _, err := range []error{second(c.Session(t.Context(), "x")), second(c.UploadFile(t.Context(), "x", "f", strings.NewReader("y"))), second(c.RunInSession(t.Context(), "x", "1"))} {
			e, ok := errors.AsType[*pyexec.Error](err)
			if !ok || e.Code != code || e.Status != status || e.Message == "" {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
}

func TestADownloadThatIsCutIsNoWhole(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		if _, err := w.Write([]byte("half")); err != nil {
			t.Error(err)
		}
	})
	f, r, err := c.DownloadFile(t.Context(), "x", "f")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err == nil || f.SizeBytes != 100 || string(raw) != "half" {
		t.Errorf("%+v %q %v", f, raw, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestALargeUploadWaitsForLeave(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "100-continue" || r.ContentLength != 1<<20 {
			t.Errorf("Expect %q, length %d", r.Header.Get("Expect"), r.ContentLength)
		}
		problem(t, w, http.StatusRequestEntityTooLarge, "exhausted")
	})
	body := bytes.NewReader(make([]byte, 1<<20))
	if _, err := c.UploadFile(t.Context(), "x", "f", body); pyexec.CodeOf(err) != pyexec.CodeExhausted || body.Len() != 1<<20 {
		t.Errorf("%d bytes are left, error %v", body.Len(), err)
	}
}

func TestDisplayFormsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, d := range []pyexec.DisplayForm{{MIME: "text/plain", Data: []byte("é"), Value: true, Display: 2}, {MIME: "image/png", Data: []byte{0x89, 0xff}}, {MIME: "text/plain", Data: []byte{}}} {
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var got pyexec.DisplayForm
		if err := json.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s became %+v, %v", raw, got, err)
		}
	}
	var d pyexec.Display
	for _, raw := range []string{`{"data":{"image/png":{"base64":"!"}}}`, `{"data":5}`, `{"data":{"x":7}}`} {
		if err := json.Unmarshal([]byte(raw), &d); err == nil {
			t.Errorf("%s was read as %+v", raw, d)
		}
	}
}
