package remote

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// request is what a server was asked.
type request struct {
	line, body string
	length     int64
}

// recording returns the Service of a server that answers every request with body and keeps the last one.
func recording(t *testing.T, body string) (*Service, *request) {
	t.Helper()
	last := &request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*last = request{r.Method + " " + r.URL.RequestURI(), string(raw), r.ContentLength}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	s, err := New(server.URL, "", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		server.Close()
	})
	return s, last
}

func TestASessionIsAskedForWhole(t *testing.T) {
	s, last := recording(t, `{"session_id":"ctx-1"}`)
	asked := executor.Session{Name: "n", Description: "d", IdleTimeout: time.Minute, MaxLife: time.Hour, Spec: executor.Spec{
		Language: executor.LanguageShell, PythonVersion: "3.12", Image: "i", Requirements: "r", PreCommands: []string{"p"},
		Env: map[string]string{"K": "v"}, Backend: "b", Network: executor.NetworkOff,
		Limits: executor.Limits{Timeout: time.Second, MemoryBytes: 1<<20 + 1, DiskBytes: 3 << 20, CPUShares: 4, PIDs: 5, OutputBytes: 6, KillGrace: 7 * time.Second},
	}}
	const want = `{"name":"n","description":"d","language":"shell","python_version":"3.12","docker_image":"i","requirements_txt":"r","pre_commands":["p"],"env":{"K":"v"},` +
		`"config":{"timeout_seconds":1,"network_disabled":true,"memory_mb":2,"disk_mb":3,"cpu_shares":4,"pids":5,"output_bytes":6,"kill_grace_seconds":7},` +
		`"backend":"b","idle_timeout_seconds":60,"max_life_seconds":3600}`
	if opened, err := s.OpenSession(t.Context(), asked); err != nil || opened.ID != "ctx-1" {
		t.Errorf("%+v, %v", opened, err)
	}
	var got, expected map[string]any
	if err := json.Unmarshal([]byte(last.body), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, expected) {
		t.Errorf("got  %s\nwant %s", last.body, want)
	}
}

func TestArgumentsOfCallsAreSent(t *testing.T) {
	s, last := recording(t, `{"session_id":"ctx-1"}`)
	for _, c := range []struct {
		want string
		call func() error
	}{
		{"GET /api/v1/executions?after=exe_2&limit=7&status=failed&status=lost ", func() error {
			_, err := s.List(t.Context(), executor.Filter{Statuses: []executor.Status{executor.StatusFailed, executor.StatusLost}, After: "exe_2", Limit: 7})
			return err
		}},
		{`POST /api/v1/sessions/ctx-1/restart {"wipe":true}`, func() error {
			_, err := s.RestartSession(t.Context(), "ctx-1", true)
			return err
		}},
		{`POST /api/v1/sessions/ctx-1/restart {"wipe":false}`, func() error {
			_, err := s.RestartSession(t.Context(), "ctx-1", false)
			return err
		}},
		{"GET /api/v1/sessions/ctx-1/files?path=a&recursive=true ", func() error {
			_, err := s.ListFiles(t.Context(), "ctx-1", "a", true)
			return err
		}},
		{`POST /api/v1/sessions/ctx-1/requirements {"requirements_txt":"idna"}`, func() error {
			_, err := s.AddRequirements(t.Context(), "ctx-1", "idna")
			return err
		}},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
		if got := last.line + " " + last.body; got != c.want {
			t.Errorf("the request is %s, want %s", got, c.want)
		}
	}
}

func TestAFileIsSentWithItsLength(t *testing.T) {
	s, last := recording(t, `{"path":"f"}`)
	for _, c := range []struct {
		name   string
		size   int64
		r      io.Reader
		body   string
		length int64
	}{
		{"a stream of known size", 3, io.MultiReader(strings.NewReader("abcdef")), "abc", 3},
		{"a stream of unknown size", -1, io.MultiReader(strings.NewReader("abcdef")), "abcdef", -1},
		{"what can go back", 6, strings.NewReader("abcdef"), "abcdef", 6},
	} {
		if _, err := s.WriteFile(t.Context(), "ctx-1", executor.File{Path: "f", SizeBytes: c.size}, c.r); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if last.body != c.body || last.length != c.length {
			t.Errorf("%s: sent %q with length %d", c.name, last.body, last.length)
		}
	}
}

// closing notes that it is closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestASubmissionClosesWhatItOpened(t *testing.T) {
	s, _ := recording(t, `{"execution_id":"exe_1"}`)
	tar, stdin := &closing{Reader: strings.NewReader("the tar")}, &closing{Reader: strings.NewReader("the stdin")}
	source := func(c *closing) *executor.Source {
		return &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return c, nil }}
	}
	if e, err := s.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: source(tar), Stdin: source(stdin)}); err != nil || e.ID != "exe_1" {
		t.Errorf("%+v, %v", e, err)
	}
	if !tar.closed || !stdin.closed {
		t.Errorf("the tar is closed: %t, the standard input: %t", tar.closed, stdin.closed)
	}
}

// The files were searched here, so the server need not keep the tar until it is whole.
func TestAWorkspaceIsSearchedOnlyOnDemand(t *testing.T) {
	s, last := recording(t, `{"execution_id":"exe_1"}`)
	for want, spec := range map[string]executor.Spec{`"detect":false`: {}, `"detect":true`: {Detect: new(true)}} {
		in := executor.Input{Workspace: &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("the tar")), nil }}}
		if _, err := s.Submit(t.Context(), spec, in); err != nil || !strings.Contains(last.body, want) {
			t.Errorf("%v, sent %q, want %s", err, last.body, want)
		}
	}
}
