package pyexec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// Wrong uses, and the answer to each, which names the thing, the reason and the remedy. The Python SDK has the same answers: both read
// testdata/wrong.

func wrongUses[T any](t *testing.T, file string) (uses []T) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "wrong", file))
	if _, outside := os.Stat(filepath.Join("..", "..", "go.work")); err != nil && outside != nil {
		t.Skipf("SKIPPED: the vectors are not here (a module outside its repository): %v", err)
	}
	if err := json.Unmarshal(raw, &uses); err != nil || len(uses) < 20 {
		t.Fatalf("%d uses, %v", len(uses), err)
	}
	return uses
}

func TestTheURLOfAServer(t *testing.T) {
	t.Parallel()
	for _, use := range wrongUses[struct{ Server, Is, Error string }](t, "servers.json") {
		c, err := pyexec.NewClient(use.Server)
		switch {
		case use.Error == "" && (err != nil || c.String() != "pyexec.Client("+use.Is+")"):
			t.Errorf("%q: %v, %v, want %s", use.Server, c, err, use.Is)
		case use.Error != "" && (err == nil || err.Error() != use.Error || pyexec.CodeOf(err) != pyexec.CodeInvalid):
			t.Errorf("%q\n got %v\nwant %s", use.Server, err, use.Error)
		}
	}
}

func TestTheAnswerOfAnotherServer(t *testing.T) {
	t.Parallel()
	for _, use := range wrongUses[struct {
		Status                            int
		Type, Body, Location, Code, Error string
	}](t, "answers.json") {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			if use.Type != "" {
				w.Header().Set("Content-Type", use.Type)
			}
			if use.Location != "" {
				w.Header().Set("Location", use.Location)
			}
			w.WriteHeader(use.Status)
			_, _ = w.Write([]byte(use.Body)) // a failure shows in the client's error
		}))
		c := clientOf(t, server, pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}))
		calls := map[string]error{"run": second(c.Run(t.Context(), pyexec.Spec{Code: "1"}, pyexec.Input{}))}
		for _, err := range c.Events(t.Context(), "exe_1", 0) {
			calls["events"] = err
		}
		if use.Status != http.StatusOK || use.Type != "text/plain" {
			calls["batch"] = second(c.RunBatch(t.Context(), pyexec.Batch{Cases: []pyexec.Case{{}}}, pyexec.Input{}, nil))
		}
		if use.Status != http.StatusOK || use.Type == "text/html" {
			calls["artifact"] = second(c.Artifact(t.Context(), "exe_1", "a"))
		}
		for name, err := range calls {
			e, ok := errors.AsType[*pyexec.Error](err)
			if want := strings.ReplaceAll(use.Error, "SERVER", server.URL); !ok || e.Code != use.Code || e.Status != use.Status || err.Error() != want {
				t.Errorf("%s of %d %s\n got %v\nwant %s", name, use.Status, use.Type, err, want)
			}
		}
	}
}

func TestWrongUses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fails := func(err error) *pyexec.Client {
		c, newErr := pyexec.NewClient("http://u:s3cret@box.lan", pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}),
			pyexec.WithHTTPClient(&http.Client{Transport: refuser{err}}))
		if newErr != nil {
			t.Fatal(newErr)
		}
		return c
	}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	closed := httptest.NewServer(nil)
	closed.Close()
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	health := func(url string) error {
		c, err := pyexec.NewClient(url, pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}))
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		return second(c.Health(ctx))
	}
	none := fails(errors.New("a request was sent"))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const example = "as http://127.0.0.1:8080"
	for _, use := range []struct {
		name string
		err  error
		want string
	}{
		{"no server", second(pyexec.NewClient("")), `server: must begin with http:// or https://, ` + example + ` does (got "")`},
		{"a token with its line end", second(pyexec.NewClient("http://box.lan", pyexec.WithToken("s3cret\n"))),
			"token: must be visible ASCII characters (character 7 is white space or a control character)"},
		{"a token that is not ASCII", second(pyexec.NewClient("http://box.lan", pyexec.WithToken("s3crét"))),
			"token: must be visible ASCII characters (character 5 is a character that is not ASCII)"},
		{"nobody listens", health(closed.URL), closed.URL + ": connection refused: is the server running there? python-executor serve starts one"},
		{"an unreachable network", second(fails(dial(errors.New("network is unreachable"))).Health(ctx)),
			"http://box.lan: network is unreachable: is the server running there? python-executor serve starts one"},
		{"a name that is not known", second(fails(dial(&net.DNSError{Name: "box.lan", Err: "no such host"})).Health(ctx)), "http://box.lan: the name box.lan is not known: is it right?"},
		{"a proxy that is away", second(fails(&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}).Health(ctx)),
			"http://box.lan: the proxy of the environment was not reached: refused: is HTTP_PROXY or HTTPS_PROXY right, and has NO_PROXY this host?"},
		{"https to a server without TLS", health(strings.Replace(plain.URL, "http", "https", 1)),
			strings.Replace(plain.URL, "http", "https", 1) + ": no TLS is spoken there: does its URL begin with http://?"},
		{"http to a server with TLS", health(strings.Replace(secure.URL, "https", "http", 1)),
			strings.Replace(secure.URL, "https", "http", 1) + ": the answer is 400 Bad Request (no type), which is not python-executor's: is its URL right, and must it begin with https://?"},
		{"a certificate that is not trusted", health(secure.URL),
			secure.URL + ": its certificate is not trusted: x509: certificate signed by unknown authority: WithHTTPClient takes a client that trusts it"},
		{"a folder that is not there", second(none.Run(ctx, pyexec.Spec{}, pyexec.Input{Folder: file + "s"})), "folder: lstat " + file + "s: no such file or directory"},
		{"a file as the folder", second(none.Run(ctx, pyexec.Spec{}, pyexec.Input{Folder: file})), "folder: open " + file + ": not a directory"},
		{"a folder and a tar", second(none.Run(ctx, pyexec.Spec{}, pyexec.Input{Folder: ".", Tar: strings.NewReader("")})), "folder: must not be given together with a tar"},
		{"stdin twice", second(none.Run(ctx, pyexec.Spec{Code: "1", Stdin: "x"}, pyexec.Input{Stdin: strings.NewReader("y")})), "stdin: must be in the Spec or in the Input, not in both"},
		{"no id of an execution", second(none.Get(ctx, "")), `no execution has the id ""`},
		{"dots for an id", second(none.Get(ctx, "..")), `no execution has the id ".."`},
		{"no id of a session", second(none.RunInSession(ctx, "", "1")), `no session has the id ""`},
		{"an absolute artifact", second(none.Artifact(ctx, "exe_1", "/etc/passwd")), `path: must be relative, without empty segments, . and .. (got "/etc/passwd")`},
		{"an artifact outside", second(none.Artifact(ctx, "exe_1", "a/../../x")), `path: must be relative, without empty segments, . and .. (got "a/../../x")`},
		{"an artifact with a dot", second(none.Artifact(ctx, "exe_1", "a/./b")), `path: must be relative, without empty segments, . and .. (got "a/./b")`},
		{"an absolute file of a session", second(none.UploadFile(ctx, "ctx-1", "/a", nil)), `path: must be relative to the session's folder, without empty segments, . and .. (got "/a")`},
	} {
		if use.err == nil || use.err.Error() != use.want {
			t.Errorf("%s\n got %v\nwant %s", use.name, use.err, use.want)
		}
	}
}

// refuser fails each request.
type refuser struct{ err error }

func (r refuser) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

func TestAPrintedValueIsShort(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`Execution(exe_1, succeeded, stdout="42\n")`: &pyexec.Execution{ExecutionID: "exe_1", Status: "succeeded", ExitCode: new(0), Stdout: "42\n"},
		`Execution(exe_1, failed, exit code 3, stdout="` + strings.Repeat("é", 80) + `"… (500 characters), stderr="no", displays=[image/png], artifacts=[a b c d e and 1 more])`: pyexec.Execution{
			ExecutionID: "exe_1", Status: "failed", ExitCode: new(3), Stdout: strings.Repeat("é", 500), Stderr: "no", Displays: []pyexec.DisplayForm{{MIME: "image/png", Data: make([]byte, 9000)}},
			Artifacts: []pyexec.Artifact{{Path: "a"}, {Path: "b"}, {Path: "c"}, {Path: "d"}, {Path: "e"}, {Path: "f"}},
		},
		`Execution(exe_1, killed, SIGKILL, error="no memory")`: &pyexec.Execution{ExecutionID: "exe_1", Status: "killed", Signal: "SIGKILL", Failure: &pyexec.Failure{Message: "no memory"}},
		`Session(ctx-1, mine, python, active)`:                 &pyexec.Session{SessionID: "ctx-1", Name: "mine", Language: "python", Status: "active"},
		`CaseResult(a, wrong_output, "2 is not 3")`:            pyexec.CaseResult{ID: "a", Verdict: "wrong_output", Detail: "2 is not 3"},
		`CaseResult(7, passed)`:                                pyexec.CaseResult{Index: 7, Verdict: "passed"},
		`BatchSummary(1 of 2 passed, 0.5 s)`:                   &pyexec.BatchSummary{Cases: 2, Passed: 1, DurationSeconds: 0.5, Results: make([]pyexec.CaseResult, 2)},
	} {
		if got := fmt.Sprint(v); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestABatchWithoutAFunctionReturnsItsCases(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusOK, "application/x-ndjson", refusedRecord+passedRecord+batchSummary)
	})
	s, err := c.RunBatch(t.Context(), pyexec.Batch{Cases: make([]pyexec.Case, 2)}, pyexec.Input{}, nil)
	if err != nil || len(s.Results) != 2 || s.Results[0].ID != "a" || s.Results[0].Result.Stdout != "1\n" || s.Results[1].Verdict != "refused" {
		t.Errorf("%+v, %v", s, err)
	}
}
