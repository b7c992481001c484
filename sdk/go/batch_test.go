package pyexec_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const (
	passedRecord  = `{"index":0,"id":"a","verdict":"passed","detail":null,"error":null,"result":{"execution_id":"exe_1","status":"succeeded","stdout":"1\n"}}` + "\n"
	refusedRecord = `{"index":1,"id":null,"verdict":"refused","detail":"full","error":{"code":"unavailable","message":"full"},"result":null}` + "\n"
	batchSummary  = `{"summary":{"cases":2,"passed":1,"verdicts":{"passed":1,"refused":1},"duration_seconds":0.5}}` + "\n"
)

// batchServer answers with each of answers in turn, and collects the requests.
func batchServer(t *testing.T, answers ...func(http.ResponseWriter)) (*pyexec.Client, *[]map[string]any) {
	t.Helper()
	var bodies []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var body map[string]any
		if err == nil {
			err = json.Unmarshal(raw, &body)
		}
		if err != nil || r.URL.Path != "/api/v1/exec/batch" || len(bodies) >= len(answers) {
			t.Errorf("%s %s: %v", r.URL.Path, raw, err)
		}
		bodies = append(bodies, body)
		answers[min(len(bodies), len(answers))-1](w)
	}))
	t.Cleanup(server.Close)
	client, err := pyexec.NewClient(server.URL, pyexec.WithRetry(pyexec.RetryPolicy{MinDelay: 1, MaxDelay: 2}))
	if err != nil {
		t.Fatal(err)
	}
	return client, &bodies
}

func lines(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, text)
	}
}

func TestABatchIsReadRecordByRecord(t *testing.T) {
	t.Parallel()
	busy := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"code":"exhausted"}`)
	}
	client, bodies := batchServer(t, busy, lines("\n"+passedRecord+"\n"+refusedRecord+batchSummary))
	var seen []pyexec.CaseResult
	summary, err := client.RunBatch(t.Context(), pyexec.Batch{
		Spec: pyexec.Spec{Code: "print(input())"}, Parallel: 2, StopAtFirstFailure: true,
		Cases: []pyexec.Case{{ID: "a", Stdin: new("1"), Expect: &pyexec.Expect{Stdout: new(""), Compare: "float", ToleranceAbs: 0.5}}, {Stdin: new("")}},
	}, pyexec.Input{}, func(c pyexec.CaseResult) error {
		seen = append(seen, c)
		return nil
	})
	if err != nil || summary.Cases != 2 || summary.Passed != 1 || summary.Verdicts[pyexec.VerdictRefused] != 1 || summary.DurationSeconds != 0.5 {
		t.Fatalf("%+v, %v", summary, err)
	}
	if len(seen) != 2 || seen[0].ID != "a" || seen[0].Verdict != pyexec.VerdictPassed || seen[0].Result.Stdout != "1\n" || seen[1].Index != 1 ||
		seen[1].Result != nil || seen[1].Failure.Code != pyexec.CodeUnavailable {
		t.Errorf("%+v", seen)
	}
	sent := (*bodies)[1]
	cases, _ := json.Marshal(sent["cases"])
	if want := `[{"expect":{"compare":"float","stdout":"","tolerance_abs":0.5},"id":"a","stdin":"1"},{"stdin":""}]`; string(cases) != want {
		t.Errorf("cases %s, want %s", cases, want)
	}
	if sent["parallel"] != 2.0 || sent["stop_at_first_failure"] != true || sent["code"] != "print(input())" {
		t.Errorf("%v", sent)
	}
	if key := sent["idempotency_key"]; key == nil || key != (*bodies)[0]["idempotency_key"] {
		t.Errorf("the repeated call has the key %v", key)
	}
}

// An answer without a summary is not whole. The cases may have run, so the call is not repeated.
func TestABatchThatIsCutOffIsAnError(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", passedRecord, passedRecord + `{"index":1`, "no json\n"} {
		client, bodies := batchServer(t, lines(answer))
		_, err := client.RunBatch(t.Context(), pyexec.Batch{Cases: []pyexec.Case{{}}}, pyexec.Input{}, func(pyexec.CaseResult) error { return nil })
		e, ok := errors.AsType[*pyexec.Error](err)
		if !ok || e.Code != pyexec.CodeUnavailable || e.Status != http.StatusOK || !strings.Contains(err.Error(), "cut off") || len(*bodies) != 1 {
			t.Errorf("%q: %v after %d calls", answer, err, len(*bodies))
		}
		if early := !strings.HasSuffix(answer, "json\n"); errors.Is(err, io.ErrUnexpectedEOF) != early {
			t.Errorf("%q: the cause is %v", answer, err)
		}
	}
}

// The caller's error ends the batch: the server notices that the client is gone.
func TestAnErrorOfTheCallerEndsABatch(t *testing.T) {
	t.Parallel()
	gone, mine := make(chan struct{}), errors.New("mine")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, passedRecord)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	client, err := pyexec.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RunBatch(context.Background(), pyexec.Batch{Cases: []pyexec.Case{{}}}, pyexec.Input{}, func(pyexec.CaseResult) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	<-gone
}
