package httpfrontend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestARunningExecutionHasTheSameShape(t *testing.T) {
	t.Parallel()
	whole := decode(t, do(t, handlerOf(t, hello().service()), http.MethodGet, one, nil).Body.Bytes())
	for name, r := range map[string]*run{
		"queued":  newRun().add(executor.Queued{}),
		"nothing": newRun(),
		"running": newRun().add(executor.Queued{}, executor.Started{PythonVersion: "3.12.1", Requirements: []string{"a==1"}}, out(executor.Stdout, 0, "so far")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := decode(t, do(t, handlerOf(t, r.service()), http.MethodGet, one, nil).Body.Bytes())
			if !slices.Equal(keys(m), keys(whole)) {
				t.Fatalf("members %v, want %v", keys(m), keys(whole))
			}
			phases, _ := m["phases"].(map[string]any)
			for _, unknown := range []any{m["exit_code"], m["signal"], m["finished_at"], m["duration_seconds"], m["error"], m["artifacts"], m["peak_memory_bytes"], m["peak_resident_bytes"], phases["run_seconds"]} {
				if unknown != nil {
					t.Errorf("something is known: %v", m)
				}
			}
			if len(phases) != 4 || m["status"] != string(r.state().Status) || m["created_at"] == nil {
				t.Errorf("%v", m)
			}
			if name == "running" && (m["stdout"] != "so far" || m["stdout_bytes"] != 6.0 || m["attempts"] != 1.0 || m["python_version"] != "3.12.1" || m["started_at"] == nil) {
				t.Errorf("%v", m)
			}
		})
	}
}

func TestTheDescriptionKnowsEveryMember(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{}, executor.Finished{Result: executor.Result{Status: executor.StatusFailed, Signal: "SIGKILL", Hint: "why", ImageDigest: "sha256:0", FilesChanged: []executor.Artifact{{Path: "a"}}, FilesOmitted: 1,
		MemorySamples: []executor.MemorySample{{Offset: time.Second, Bytes: 1}}, Artifacts: []executor.Artifact{{Path: "a", SizeBytes: 1}},
		Failure: &executor.Failure{Code: executor.Internal, Phase: executor.PhaseRun, Message: "the inside", Field: "tar"}}})
	m := decode(t, do(t, handlerOf(t, r.service()), http.MethodGet, one, nil).Body.Bytes())
	sameMembers(t, "Result", schemaOf[pyexec.Execution](""), m)
	if e := m["error"].(map[string]any); e["message"] != "internal error" || m["signal"] != "SIGKILL" || m["exit_code"] != nil {
		t.Fatalf("%v", m)
	}
	full := executor.Info{Generation: 1, Images: []string{"i"}, Message: "m", Warnings: []string{"w"}, Details: map[string]string{"a": "b"}, Metrics: map[string]float64{"a": 1}}
	raw, err := json.Marshal(apijson.BackendsOf([]executor.Info{full}))
	if err != nil {
		t.Fatal(err)
	}
	sameMembers(t, "Backends", schemaOf[apijson.BackendList](""), decode(t, raw))
	raw, err = json.Marshal(pyexec.Problem{Errors: []pyexec.ProblemField{{}}, ExecutionID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	sameMembers(t, "Problem", schemaOf[pyexec.Problem](""), decode(t, raw))
}

// sameMembers compares the members of a value that has all of them with its schema.
func sameMembers(t *testing.T, path string, s *huma.Schema, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if s.Properties == nil {
			return
		}
		if !slices.Equal(keys(v), keys(s.Properties)) {
			t.Errorf("%s has %v, described are %v", path, keys(v), keys(s.Properties))
			return
		}
		for k, child := range v {
			sameMembers(t, path+"."+k, s.Properties[k], child)
		}
	case []any:
		for _, child := range v {
			sameMembers(t, path+"[]", s.Items, child)
		}
	}
}

func TestABigOutputIsWrittenFromTheLog(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{})
	var want strings.Builder
	for i := range 200 {
		line := strings.Repeat(fmt.Sprintf("%06d é\n", i), 1000)
		r.add(out(executor.Stdout, int64(want.Len()), line))
		want.WriteString(line)
	}
	r.add(out(executor.Stderr, 0, "\xfe"), done(0))
	for _, w := range []*bytes.Buffer{
		postJSON(t, handlerOf(t, r.service()), "/api/v1/exec/sync", `{"code":"x"}`).Body,
		do(t, handlerOf(t, r.service()), http.MethodGet, one, nil).Body,
	} {
		m := decode(t, w.Bytes())
		if m["stdout"] != want.String() || m["stdout_base64"] != nil || m["stderr_base64"] != "/g==" {
			t.Fatal("not the output")
		}
	}
}

func TestCancelAnswersWithTheStatus(t *testing.T) {
	t.Parallel()
	for status, more := range map[executor.Status]string{
		executor.StatusKilled: "", executor.StatusSucceeded: `,"message":"the execution had ended before it could be killed"`,
	} {
		r := newRun().add(executor.Started{}, executor.Finished{Result: executor.Result{Status: status}})
		w := do(t, handlerOf(t, r.service()), http.MethodDelete, one, nil)
		if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"status":"`+string(status)+`"`+more+`}` {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	all := make([]executor.Execution, 5)
	for i := range all {
		all[i] = hello().state()
		all[i].ID = fmt.Sprintf("exe_%d", 9-i)
	}
	var asked []executor.Filter
	svc := hello().service()
	svc.list = func(_ context.Context, f executor.Filter) ([]executor.Execution, error) {
		asked = append(asked, f)
		from := slices.IndexFunc(all, func(e executor.Execution) bool { return f.After == "" || e.ID < f.After })
		if from < 0 {
			return nil, nil
		}
		return all[from:min(len(all), from+f.Limit)], nil
	}
	h := handlerOf(t, svc)
	var ids []string
	pages, next := 0, ""
	for {
		pages++
		w := do(t, h, http.MethodGet, "/api/v1/executions?limit=2&status=running,succeeded&status=lost&after="+next, nil)
		m := decode(t, w.Body.Bytes())
		for _, e := range m["executions"].([]any) {
			e := e.(map[string]any)
			ids = append(ids, e["execution_id"].(string))
			if _, there := e["stdout"]; there || len(e) != len(summarySchema().Required) {
				t.Fatalf("%v", e)
			}
		}
		if m["next"] == nil {
			break
		}
		next = m["next"].(string)
	}
	if pages != 3 || len(ids) != 5 || ids[4] != "exe_5" {
		t.Fatalf("%d pages, %v", pages, ids)
	}
	statuses := []executor.Status{executor.StatusRunning, executor.StatusSucceeded, executor.StatusLost}
	for i, want := range []executor.Filter{{Limit: 2, Statuses: statuses}, {Limit: 1, After: all[1].ID, Statuses: statuses}} { // a page, and whether another follows
		if !reflect.DeepEqual(asked[i], want) {
			t.Fatalf("%+v, want %+v", asked[i], want)
		}
	}
	// A page that is just full is the last one.
	m := decode(t, do(t, h, http.MethodGet, "/api/v1/executions?limit=5", nil).Body.Bytes())
	if m["next"] != nil || len(m["executions"].([]any)) != 5 {
		t.Fatalf("%v", m["next"])
	}
	// A page that is bounded in bytes is shorter than asked for, and another one follows.
	svc.list = func(_ context.Context, f executor.Filter) ([]executor.Execution, error) {
		from := slices.IndexFunc(all, func(e executor.Execution) bool { return f.After == "" || e.ID < f.After })
		return all[from : from+1], nil
	}
	m = decode(t, do(t, h, http.MethodGet, "/api/v1/executions?limit=5", nil).Body.Bytes())
	if m["next"] != all[0].ID || len(m["executions"].([]any)) != 1 {
		t.Fatalf("next %v after a page of one", m["next"])
	}
	svc.list = func(_ context.Context, f executor.Filter) ([]executor.Execution, error) {
		if f.Limit != 50 {
			t.Errorf("a page without a limit has %d", f.Limit)
		}
		return nil, nil
	}
	if w := do(t, h, http.MethodGet, "/api/v1/executions", nil); strings.TrimSpace(w.Body.String()) != `{"executions":[],"next":null}` {
		t.Fatal(w.Body)
	}
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "limit=", "limit=-1"} {
		wantProblem(t, do(t, h, http.MethodGet, "/api/v1/executions?"+query, nil), 422, executor.Invalid, "limit")
	}
	wantProblem(t, do(t, h, http.MethodGet, "/api/v1/executions?status=done&limit=x", nil), 422, executor.Invalid, "limit", "status")
	w := do(t, h, http.MethodGet, "/api/v1/executions?status=queued,foo&status=&limit=99999999999999999999", nil)
	wantProblem(t, w, 422, executor.Invalid, "limit", "status")
	const want = `status: must be one of queued, running, succeeded, failed, timed_out, out_of_memory, killed, lost (got \"foo\")`
	if !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s", w.Body)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	h := handlerOf(t, svc)
	w := do(t, h, http.MethodGet, one+"/artifacts", nil)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-tar" || !bytes.Equal(w.Body.Bytes(), tarOf("out/a.html", "<b>a</b>", "b.txt", "bb")) {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	for path, want := range map[string][2]string{"out/a.html": {"a.html", "<b>a</b>"}, "b.txt": {"b.txt", "bb"}, "out%2Fa.html": {"a.html", "<b>a</b>"}} {
		w := do(t, h, http.MethodGet, one+"/artifacts/"+path, nil)
		head := w.Header()
		if w.Code != 200 || w.Body.String() != want[1] || head.Get("Content-Type") != "application/octet-stream" || head.Get("X-Content-Type-Options") != "nosniff" ||
			head.Get("Content-Disposition") != "attachment; filename="+want[0] || !strings.Contains(head.Get("Content-Security-Policy"), "sandbox") || head.Get("Content-Length") != fmt.Sprint(len(want[1])) {
			t.Errorf("%s: %d %q %v", path, w.Code, w.Body, head)
		}
	}
	for _, path := range []string{"none", "out", "", ".", "%2e%2e/b.txt", "..%2fb.txt", "%2Fetc%2Fpasswd", "out/../b.txt", "out//a.html", "b.txt/", "b.txt%00"} {
		wantProblem(t, do(t, h, http.MethodGet, one+"/artifacts/"+path, nil), 404, executor.NotFound)
	}
	svc.artifacts = func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(tarOf("./out/a.html", "dot"))), nil
	}
	if w := do(t, h, http.MethodGet, one+"/artifacts/out/a.html", nil); w.Code != 200 || w.Body.String() != "dot" {
		t.Errorf("an artifact whose name begins with a dot: %d %s", w.Code, w.Body)
	}
	svc.artifacts = func(context.Context, string) (io.ReadCloser, error) {
		return nil, executor.Errorf(executor.Conflict, "it runs")
	}
	wantProblem(t, do(t, h, http.MethodGet, one+"/artifacts", nil), 409, executor.Conflict)
	wantProblem(t, do(t, h, http.MethodGet, one+"/artifacts/a", nil), 409, executor.Conflict)
	svc.artifacts = func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(make([]byte, 700)[:600])), nil
	}
	if w := do(t, h, http.MethodGet, one+"/artifacts/a", nil); w.Code != 404 && w.Code != 500 {
		t.Fatalf("%d", w.Code)
	}
}

func TestWhatCannotBeAnIDIsNotAskedFor(t *testing.T) {
	t.Parallel()
	svc, asked := hello().service(), ""
	svc.get = func(_ context.Context, id string) (executor.Execution, error) {
		asked = id
		return executor.Execution{}, executor.Errorf(executor.NotFound, "none")
	}
	h := handlerOf(t, svc)
	for id, possible := range map[string]bool{strings.Repeat("x", 128): true, strings.Repeat("x", 129): false, "!~": true, "%20": false, "a%7f": false, "%C3%A9": false} {
		asked = ""
		wantProblem(t, do(t, h, http.MethodGet, "/api/v1/executions/"+id, nil), 404, executor.NotFound)
		if (asked != "") != possible {
			t.Errorf("%s: the service was asked for %q", id, asked)
		}
	}
}

func TestHeadAnswersWithoutABody(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}) // a GET would follow it for ever
	h := handlerOf(t, r.service())
	for _, path := range []string{one, one + "/events", one + "/logs?follow=true", one + "/artifacts", one + "/artifacts/b.txt"} {
		if w := do(t, h, http.MethodHead, path, nil); w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
