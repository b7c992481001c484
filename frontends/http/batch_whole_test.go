package httpfrontend_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// batchRecord is a line of the answer to a batch.
type batchRecord struct {
	pyexec.CaseResult
	Summary *pyexec.BatchSummary `json:"summary"`
}

// batch sends a batch and returns its records, those of the cases by their index.
func (w *whole) batch(contentType string, body io.Reader, header ...string) (map[int64]batchRecord, *pyexec.BatchSummary) {
	w.t.Helper()
	status, v, res := w.call(http.MethodPost, "/api/v1/exec/batch", contentType, body, header...)
	if status != 200 || res.Header.Get("Content-Type") != "application/x-ndjson" {
		w.t.Fatalf("%d %v", status, v)
	}
	records := map[int64]batchRecord{}
	lines := strings.Split(strings.TrimSuffix(v["raw"].(string), "\n"), "\n")
	for i, line := range lines {
		var r batchRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			w.t.Fatalf("line %d: %v: %.500s", i, err, line)
		}
		if i == len(lines)-1 {
			return records, r.Summary
		}
		if _, again := records[r.Index]; again {
			w.t.Errorf("case %d has two records", r.Index)
		}
		records[r.Index] = r
	}
	w.t.Fatal("no line")
	return nil, nil
}

func jsonBatch(v any) io.Reader {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(raw)
}

type object = map[string]any

// roomy lets a batch have all its cases at once.
func roomy(eo *engine.Options, _ *httpfrontend.Options) {
	eo.Engine = config.Engine{MaxConcurrent: 4, MaxQueued: 100}
}

func TestABatchAnswersWithAVerdictPerCase(t *testing.T) {
	t.Parallel()
	w := newWhole(t, roomy)
	records, summary := w.batch("application/json", jsonBatch(object{
		"command": []string{"fake", "-c"}, "config": object{"output_bytes": 600_000},
		"cases": []object{
			{"id": "right", "args": []string{"print hi"}, "expect": object{"stdout": "hi\n"}},
			{"id": "wrong", "args": []string{"print hi"}, "expect": object{"stdout": "ho\n"}},
			{"args": []string{"exit 3"}, "expect": object{"exit_code": 3}},
			{"args": []string{"raise no"}},
			{"args": []string{"signal SEGV"}},
			{"args": []string{"flood stdout 700KB"}},
			{"args": []string{"hex stdout ff"}, "env": object{"A": nil, "B": "b"}},
			{"args": []string{"read-stdin"}, "stdin": "0.33333", "expect": object{"stdout": "0.333", "compare": "float", "tolerance_abs": 0.001}},
		},
	}))
	for i, verdict := range []string{"passed", "wrong_output", "passed", "failed", "failed", "passed", "passed", "passed"} {
		r := records[int64(i)]
		if r.Verdict != verdict || r.Result == nil || !strings.HasPrefix(r.Result.ExecutionID, "exe_") {
			t.Errorf("case %d: %+v, want %s", i, r.CaseResult, verdict)
		}
	}
	if summary == nil || summary.Cases != 8 || summary.Passed != 5 || summary.Verdicts["failed"] != 2 || summary.DurationSeconds <= 0 {
		t.Errorf("summary %+v", summary)
	}
	if r := records[0]; r.ID != "right" || r.Result.Stdout != "hi\n" || r.Detail != "" {
		t.Errorf("%+v", r.CaseResult)
	}
	if r := records[1]; r.ID != "wrong" || !strings.Contains(r.Detail, "line 1") {
		t.Errorf("%+v", r.CaseResult)
	}
	// More than is kept in memory comes out of the log.
	if r := records[5].Result; len(r.Stdout) != 600_000 || !r.StdoutTruncated || r.StdoutBytes != 700<<10 {
		t.Errorf("%d bytes of %d", len(r.Stdout), r.StdoutBytes)
	}
	if r := records[6].Result; string(r.StdoutBase64) != "\xff" {
		t.Errorf("%q", r.StdoutBase64)
	}
	if _, v := w.get("/api/v1/executions/" + records[1].Result.ExecutionID); v["stdout"] != "hi\n" {
		t.Errorf("the execution of a case: %v", v)
	}
	// The timeout is that of every case. A machine under load may take this time for a program that ends by itself, so only this one has it.
	records, summary = w.batch("application/json", jsonBatch(object{"code": "hang", "config": object{"timeout_seconds": 0.2}, "cases": []object{{}}}))
	if r := records[0]; r.Verdict != "timed_out" || r.Result == nil || summary == nil || summary.Verdicts["timed_out"] != 1 {
		t.Errorf("%+v, summary %+v", r.CaseResult, summary)
	}
}

// get reads an object.
func (w *whole) get(path string) (int, map[string]any) {
	w.t.Helper()
	status, v, _ := w.call(http.MethodGet, path, "", nil)
	return status, v
}

// form returns a multipart body of name, content pairs.
func form(t *testing.T, parts ...string) (contentType string, body io.Reader) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		p, err := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + parts[i] + `"`}})
		if err == nil {
			_, err = io.WriteString(p, parts[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return m.FormDataContentType(), &b
}

// All cases read the same files and, where they have none of their own, the same standard input. No copy of them is left.
func TestTheCasesOfABatchReadOneUpload(t *testing.T) {
	t.Parallel()
	var blobs executor.Blobs
	w := newWhole(t, func(eo *engine.Options, fo *httpfrontend.Options) {
		eo.Engine = config.Engine{MaxConcurrent: 2, MaxQueued: 100}
		blobs = eo.Blobs
	})
	long := strings.Repeat("0123456789abcdef", 20_000) // more than is read ahead of Submit
	packed := string(archive("data.txt", long))
	for _, order := range [][]string{{"metadata", "tar", "stdin"}, {"tar", "stdin", "metadata"}} {
		content := map[string]string{"tar": packed, "stdin": "shared",
			"metadata": `{"code":"cat data.txt\nread-stdin","cases":[{},{"stdin":"own"},{"stdin":""},{},{},{}],"parallel":6}`}
		var parts []string
		for _, name := range order {
			parts = append(parts, name, content[name])
		}
		contentType, body := form(t, parts...)
		records, summary := w.batch(contentType, body)
		if summary == nil || summary.Passed != 6 {
			t.Fatalf("%v: %+v", order, summary)
		}
		for i, stdin := range []string{"shared", "own", "", "shared"} {
			if got := records[int64(i)].Result.Stdout; got != long+stdin {
				t.Errorf("%v: case %d printed %d bytes that end in %q", order, i, len(got), got[max(0, len(got)-10):])
			}
		}
		for b, err := range blobs.List(t.Context(), "") {
			t.Errorf("%v: blob %s is left, %v", order, b.Key, err)
		}
	}
}

// The files of a JSON body come to every case, with the requirements that are found in them.
func TestABatchTakesFilesOfAJSONBody(t *testing.T) {
	t.Parallel()
	w := newWhole(t, roomy)
	records, summary := w.batch("application/json", jsonBatch(object{
		"files": object{"main.py": "cat a/b.txt\n", "a/b.txt": "text", "requirements.txt": "six"}, "cases": []object{{}, {}},
	}))
	if summary.Passed != 2 || records[1].Result.Stdout != "text" || fmt.Sprint(records[1].Result.ResolvedRequirements) == "[]" {
		t.Errorf("%+v %+v", summary, records[1].Result)
	}
}

// What is wrong with a batch is told before anything runs, by the names of the fields.
func TestABadBatchIsRefused(t *testing.T) {
	t.Parallel()
	w := newWhole(t, roomy)
	for _, tt := range []struct {
		body   string
		status int
		fields string
	}{
		{`{"code":"x"}`, 422, "cases"},
		{`{"code":"x","cases":[]}`, 422, "cases"},
		{`{"code":"x","cases":{}}`, 422, "cases"},
		{`{"code":"x","cases":[1,{"argv":[]},{"args":["a\u0000"],"env":{"A=":"x"},"stdin":1,"expect":{"compare":"near","tolerance_abs":-1,"exit_code":256}}]}`, 422,
			"cases[0] cases[1].argv cases[2].args[0] cases[2].env.A= cases[2].stdin cases[2].expect.compare cases[2].expect.tolerance_abs cases[2].expect.exit_code"},
		{`{"code":"x","cases":[{"id":"a"},{"id":"a"}],"parallel":65}`, 422, "parallel"},
		{`{"code":"x","cases":[{"id":"a"},{"id":"a"}],"session_id":"ctx-1","durable":true}`, 422, "session_id durable cases[1].id"},
		{`{"code":"x","cases":[{}],"backend":"none"}`, 422, "backend"},
		{`{"cases":[{}]}`, 422, "code"},
		{`{"code":"x","cases":[{}],"files":{"../x":""}}`, 422, "files.../x"},
		{`{`, 400, ""},
	} {
		status, v := w.json("/api/v1/exec/batch", tt.body)
		var fields []string
		list, _ := v["errors"].([]any)
		for _, e := range list {
			location, _ := e.(map[string]any)["location"].(string)
			fields = append(fields, strings.TrimPrefix(location, "body."))
		}
		if got := strings.Join(fields, " "); status != tt.status || got != tt.fields {
			t.Errorf("%s: %d, fields %s, want %s", tt.body, status, got, tt.fields)
		}
	}
	select {
	case id := <-w.started:
		t.Errorf("%s has started", id)
	default:
	}
}

// A record comes when its case ends, not at the end of the batch, and a client that leaves cancels what runs.
func TestABatchOfAClientThatLeavesIsCancelled(t *testing.T) {
	t.Parallel()
	w := newWhole(t, roomy)
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/api/v1/exec/batch",
		strings.NewReader(`{"command":["fake","-c"],"cases":[{"args":["print first"]},{"args":["hang"]},{"args":["hang"]},{"args":["hang"]}],"parallel":2}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"stdout":"first\n"`) {
		t.Fatalf("%q, %v", line, err)
	}
	awaittest.Until(w.t, "two other cases run", func() bool { return len(w.backend.Runs()) == 3 })
	leave(errors.New("the client leaves"))
	awaittest.Until(w.t, "the cases of a client that has left end", func() bool { return len(w.backend.Running()) == 0 })
	if n := len(w.backend.Runs()); n != 3 {
		t.Errorf("%d cases have run", n)
	}
}

// A full server refuses a batch as it refuses a program.
func TestABatchForWhichThereIsNoPlaceIsRefused(t *testing.T) {
	t.Parallel()
	w := newWhole(t, func(eo *engine.Options, _ *httpfrontend.Options) {
		eo.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 1, MaxPerOwner: 1}
	})
	if status, v := w.json("/api/v1/exec/async", `{"code":"hang"}`); status != 202 {
		t.Fatalf("%d %v", status, v)
	}
	status, v, res := w.call(http.MethodPost, "/api/v1/exec/batch", "application/json", strings.NewReader(`{"code":"x","cases":[{}]}`))
	if status != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", status, v)
	}
}

// A token that may only execute gets the results of its batch, also those that come out of the log.
func TestABatchNeedsNoRightToRead(t *testing.T) {
	t.Parallel()
	w := newWhole(t, func(eo *engine.Options, fo *httpfrontend.Options) {
		roomy(eo, fo)
		fo.Auth = execOnly(t)
	})
	records, summary := w.batch("application/json", strings.NewReader(`{"code":"flood stdout 400KB","cases":[{},{}]}`), "Authorization", "Bearer "+execOnlyToken)
	if summary.Passed != 2 || len(records[0].Result.Stdout) != 400<<10 {
		t.Errorf("%+v, %d bytes", summary, len(records[0].Result.Stdout))
	}
}

const execOnlyToken = "exec-only"

// execOnly knows one token, which has the scope exec only.
func execOnly(t *testing.T) *auth.Authenticator {
	t.Helper()
	sum := sha256.Sum256([]byte(execOnlyToken))
	a, err := auth.New([]auth.Token{{Owner: "ann", SHA256: hex.EncodeToString(sum[:]), Scopes: []executor.Scope{executor.ScopeExec}}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
