package httpfrontend

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const oneSession = "/api/v1/sessions/" + testSession

func TestOpeningASessionSaysEveryField(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	w := postJSON(t, handlerOf(t, svc), "/api/v1/sessions", `{"name":"n é","description":"d","language":"javascript","python_version":"3.12","docker_image":"python:3.12",
		"requirements_txt":"idna\n","pre_commands":["apt update"],"env":{"A":"b"},"backend":"uv","idle_timeout_seconds":60,"max_life_seconds":3600.5,
		"config":{"timeout_seconds":10,"network_disabled":true,"memory_mb":64,"disk_mb":32,"cpu_shares":512,"pids":16,"output_bytes":1000,"kill_grace_seconds":1.5}}`)
	if w.Code != 201 || w.Header().Get("Location") != oneSession || decode(t, w.Body.Bytes())["session_id"] != testSession {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	want := executor.Session{Name: "n é", Description: "d", Language: executor.LanguageJavaScript, IdleTimeout: time.Minute, MaxLife: 3600*time.Second + time.Second/2,
		Spec: executor.Spec{Language: executor.LanguageJavaScript, PythonVersion: "3.12", Image: "python:3.12", Requirements: "idna\n", PreCommands: []string{"apt update"},
			Env: map[string]string{"A": "b"}, Backend: "uv", Network: executor.NetworkOff,
			Limits: executor.Limits{Timeout: 10 * time.Second, MemoryBytes: 64 << 20, DiskBytes: 32 << 20, CPUShares: 512, PIDs: 16, OutputBytes: 1000, KillGrace: 3 * time.Second / 2}}}
	if !reflect.DeepEqual(svc.asked, want) {
		t.Fatalf("got  %+v\nwant %+v", svc.asked, want)
	}
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/sessions", `{}`); w.Code != 201 || !reflect.DeepEqual(svc.asked, executor.Session{}) {
		t.Fatalf("%d: what was not said was asked: %+v", w.Code, svc.asked)
	}
}

func TestABadRequestOfASessionNamesEveryField(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	for _, tt := range []struct {
		path, body string
		fields     []string
	}{
		{"", `{"name":1,"nonsense":true,"config":{"memory_mb":0,"x":1},"idle_timeout_seconds":0,"max_life_seconds":-1,"language":"cobol","env":{"A=B":"x"}}`,
			[]string{"name", "nonsense", "config.memory_mb", "config.x", "idle_timeout_seconds", "max_life_seconds", "language", "env.A=B"}},
		{"", `{"code":"x"}`, []string{"code"}},
		{"", `{"name":"a","name":"b"}`, []string{"name"}},
		{"", `{"name":"a\u0000b"}`, []string{"name"}},
		{"", `[]`, []string{"body"}},
		{"/" + testSession + "/restart", `{"wipe":"yes","hard":true}`, []string{"wipe", "hard"}},
		{"/" + testSession + "/requirements", `{}`, []string{"requirements_txt"}},
		{"/" + testSession + "/requirements", `{"requirements":"idna"}`, []string{"requirements"}},
		{"/" + testSession + "/requirements", `{"packages":"idna"}`, []string{"packages"}},
		{"/" + testSession + "/requirements", `{"requirements_txt":"  \n"}`, []string{"requirements_txt"}},
		{"/" + testSession + "/requirements", `{"requirements_txt":["a"]}`, []string{"requirements_txt"}},
	} {
		p := wantProblem(t, postJSON(t, h, "/api/v1/sessions"+tt.path, tt.body), 422, executor.Invalid, tt.fields...)
		errs, _ := p["errors"].([]any)
		if m, _ := errs[0].(map[string]any); !strings.HasPrefix(fmt.Sprint(m["location"]), "body") {
			t.Errorf("%v", m)
		}
	}
	for _, path := range []string{"/api/v1/sessions", oneSession + "/requirements", oneSession + "/restart"} {
		wantProblem(t, postJSON(t, h, path, `{`), 400, executor.Invalid)
		wantProblem(t, postJSON(t, h, path, "\xff"), 400, executor.Invalid)
		if !strings.HasSuffix(path, "/restart") {
			wantProblem(t, postJSON(t, h, path, ""), 400, executor.Invalid)
		}
		wantProblem(t, do(t, h, "POST", path, strings.NewReader("{}"), "Content-Type", "text/plain"), 415, executor.Invalid)
		wantProblem(t, do(t, h, "POST", path, strings.NewReader("{}"), "Content-Type", "application/json; charset=latin1"), 415, executor.Invalid)
		wantProblem(t, do(t, h, "POST", path, strings.NewReader("{}"), "Content-Type", "application/json", "Content-Encoding", "gzip"), 415, executor.Invalid)
		wantProblem(t, postJSON(t, h, path, `{"name":"`+strings.Repeat("x", metadataMax)+`"}`), 413, executor.Exhausted)
	}
}

func TestCallsOnASession(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	h := handlerOf(t, svc)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/api/v1/sessions", "", 200, `{"sessions":[{"session_id":"` + testSession + `",`},
		{"GET", oneSession, "", 200, `{"session_id":"` + testSession + `","name":"one","description":"","language":"python","backend":"fake","generation":null,"status":"active","reason":null,`},
		{"POST", oneSession + "/interrupt", "", 200, `{"session_id":"` + testSession + `",`},
		{"POST", oneSession + "/restart", "", 200, `{"session_id":"` + testSession + `",`},
		{"POST", oneSession + "/restart", `{"wipe":true}`, 200, `{"session_id":"` + testSession + `",`},
		{"POST", oneSession + "/restart", `{}`, 200, `{"session_id":"` + testSession + `",`},
		{"GET", oneSession + "/variables", "", 200, `{"variables":[{"name":"x","type":"int","preview":"100"}]}`},
		{"POST", oneSession + "/requirements", `{"requirements_txt":"idna"}`, 200, `{"resolved_requirements":["idna==3.10"]}`},
		{"GET", oneSession + "/files", "", 200, `{"files":[{"path":"a b.txt","directory":false,"size_bytes":4,"mode":420,"mod_time":"2026-11-21T12:00:00Z"}]}`},
		{"GET", oneSession + "/files?path=.&recursive=1", "", 200, `{"files":[{"path":"a b.txt",`},
		{"DELETE", oneSession, "", 200, `{"status":"closed"}`},
	} {
		contentType := ""
		if tt.body != "" {
			contentType = "application/json"
		}
		w := do(t, h, tt.method, tt.path, strings.NewReader(tt.body), "Content-Type", contentType)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
		if tt.path == oneSession+"/restart" && svc.wiped != (tt.body == `{"wipe":true}`) {
			t.Errorf("%s: wipe is %t", tt.body, svc.wiped)
		}
	}
	if svc.added != "idna" {
		t.Errorf("added %q", svc.added)
	}
}

// each calls test with every operation that names a Session.
func each(t *testing.T, h *frontend, test func(t *testing.T, r route, target, body, contentType string)) {
	t.Helper()
	bodies := map[string]string{"open-session": "{}", "restart-session": "{}", "add-requirements": `{"requirements_txt":"idna"}`}
	for _, r := range h.sessionOperations() {
		t.Run(r.id, func(t *testing.T) {
			contentType := "application/json"
			if r.id == "write-file" {
				contentType = "application/octet-stream"
			}
			test(t, r, strings.Replace(r.path, "{path}", "a.txt", 1), bodies[r.id], contentType)
		})
	}
}

func TestEveryCodeOfASessionCallIsItsStatusAndDescribed(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	h := handlerOf(t, svc)
	each(t, h, func(t *testing.T, r route, target, body, contentType string) {
		described := r.huma().Responses
		// Which codes a call may answer is written at executor.Sessions, SessionTools and SessionFiles.
		codes := []executor.Code{executor.Unavailable, executor.Unimplemented, executor.Denied, executor.Unauthenticated, executor.Internal}
		if strings.Contains(r.path, "{id}") {
			codes = append(codes, executor.NotFound)
		}
		switch r.id {
		case "open-session":
			codes = append(codes, executor.Invalid, executor.Exhausted)
		case "restart-session":
			codes = append(codes, executor.Conflict)
		case "list-variables":
			codes = append(codes, executor.Conflict, executor.Exhausted)
		case "add-requirements", "list-files", "write-file":
			codes = append(codes, executor.Conflict, executor.Exhausted, executor.Invalid)
		case "read-file", "remove-file":
			codes = append(codes, executor.Conflict, executor.Invalid)
		}
		for _, code := range codes {
			svc.fail = &executor.Error{Code: code, Message: "because", RetryAfter: 3 * time.Second}
			status := httpStatus(code)
			if code == executor.Exhausted && strings.HasSuffix(target, "/files") || r.id == "write-file" && code == executor.Exhausted {
				status = 413
			}
			w := do(t, h, r.method, strings.Replace(target, "{id}", testSession, 1), strings.NewReader(body), "Content-Type", contentType)
			wantProblem(t, w, status, code)
			if described[strconv.Itoa(w.Code)] == nil {
				t.Errorf("%s answers %d, which is not described", r.id, w.Code)
			}
			if status == 429 && w.Header().Get("Retry-After") != "3" {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
		}
	})
}

func TestAnUnknownSessionIsNotFound(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	each(t, h, func(t *testing.T, r route, target, body, contentType string) {
		if !strings.Contains(target, "{id}") {
			return
		}
		for _, id := range []string{"ctx-unknown", "%00", "a%20b", "%2e%2e", strings.Repeat("x", 200), "ctx-%c3%a9"} {
			w := do(t, h, r.method, strings.Replace(target, "{id}", id, 1), strings.NewReader(body), "Content-Type", contentType)
			p := wantProblem(t, w, 404, executor.NotFound)
			errs, _ := p["errors"].([]any)
			if id == "%2e%2e" && errs == nil {
				continue // no path at all
			}
			if len(errs) != 1 || !strings.HasPrefix(fmt.Sprint(p["detail"]), "session_id: ") {
				t.Errorf("%s %s: %v", r.id, id, p)
			} else if m, _ := errs[0].(map[string]any); m["field"] != "session_id" || m["location"] != "path.session_id" {
				t.Errorf("%s %s: %v", r.id, id, p)
			}
		}
	})
}

func TestExecutionsInASession(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/api/v1/exec/sync", "/api/v1/exec/async"} {
		svc, got := taking(hello())
		postJSON(t, handlerOf(t, svc), target, `{"session_id":"`+testSession+`","code":"x"}`)
		if got.spec.Session != testSession || got.spec.Code != "x" || got.spec.Detect != nil {
			t.Errorf("JSON: %+v", got.spec)
		}
		postForm(t, handlerOf(t, svc), target, part{"metadata", `{"session_id":"` + testSession + `","command":["ls"]}`, nil}, part{"stdin", "in", nil})
		if got.spec.Session != testSession || len(got.spec.Command) != 1 || got.stdin != "in" {
			t.Errorf("multipart: %+v", got.spec)
		}
		svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
			return executor.Execution{}, executor.Errorf(executor.NotFound, "no session has the id ctx-1")
		}
		wantProblem(t, postJSON(t, handlerOf(t, svc), target, `{"session_id":"ctx-1","code":"x"}`), 404, executor.NotFound)
	}
}

// shown is a run in a Session that displays much or little.
func shown(size int) *run {
	r := newRun()
	r.rec.Spec.Session = testSession
	return r.add(executor.Queued{}, executor.Started{},
		executor.Output{Stream: executor.Stdout, Data: []byte("late\n"), Earlier: true},
		executor.Display{Data: map[string][]byte{"image/png": bytes.Repeat([]byte{0x89}, size), "text/plain": []byte("<plot>")}},
		executor.Display{Data: map[string][]byte{"text/plain": []byte("101")}, Value: true},
		done(0, func(r *executor.Result) {
			r.DisplaysDropped = 2
			r.SessionState = executor.SessionStateRestarted
			r.StdoutBytes = 5
		}))
}

func TestDisplaysAreInTheResult(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in memory": 4, "from the log": captureMax + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shown(size)
			h := handlerOf(t, r.service())
			sync := postJSON(t, h, "/api/v1/exec/sync", `{"session_id":"`+testSession+`","code":"x"}`)
			for from, w := range map[string]*httptest.ResponseRecorder{"sync": sync, "get": do(t, h, "GET", one, nil)} {
				if body := strings.TrimSuffix(w.Body.String(), "\n"); strings.Contains(body, "\n") {
					t.Errorf("%s: a result is one line: %.300s", from, body)
				}
				m := decode(t, w.Body.Bytes())
				displays, _ := m["displays"].([]any)
				if len(displays) != 3 || m["displays_truncated"] != false || m["displays_dropped"] != 2.0 || m["session_state"] != "restarted" || m["session_id"] != testSession || m["stdout"] != "late\n" {
					t.Fatalf("%s: %.300s", from, w.Body)
				}
				png, _ := displays[0].(map[string]any)
				if png["mime"] != "image/png" || len(fmt.Sprint(png["base64"])) != (size+2)/3*4 || png["data"] != nil || png["display"] != 0.0 || png["value"] != false {
					t.Errorf("%s: %.200v", from, png)
				}
				if want := map[string]any{"mime": "text/plain", "data": "101", "value": true, "display": 1.0}; !reflect.DeepEqual(displays[2], want) {
					t.Errorf("%s: %v", from, displays[2])
				}
			}
		})
	}
}

func TestTooManyDisplaysAreCutInTheResultAndWholeInTheEvents(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, executor.Started{})
	const each, count = executor.MaxDisplayData - 100, 10
	data := make([]byte, each) // one array, many times
	for i := range data {
		data[i] = byte(rand.Uint32()) | 0x80
	}
	for i := range count {
		r.add(executor.Display{Data: map[string][]byte{"image/png": data, "text/plain": []byte(strconv.Itoa(i))}})
	}
	r.add(done(0))
	h := handlerOf(t, r.service())
	w := do(t, h, "GET", one, nil)
	m := decode(t, w.Body.Bytes())
	displays, _ := m["displays"].([]any)
	images := 0
	for _, d := range displays {
		if d.(map[string]any)["mime"] == "image/png" {
			images++
		}
	}
	if m["displays_truncated"] != true || images != 4 || len(displays) != images+count {
		t.Errorf("%d images of %d displays, truncated %v", images, len(displays), m["displays_truncated"])
	}
	events := do(t, h, "GET", one+"/events", nil).Body.String()
	if got := strings.Count(events, "event: display\n"); got != count || len(events) < count*each {
		t.Errorf("%d displays in %d bytes of events", got, len(events))
	}
}

func TestAResultWithoutDisplaysCostsNoPassForThem(t *testing.T) {
	t.Parallel()
	r := hello()
	svc := r.service()
	passes := 0
	inner := svc.events
	svc.events = func(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
		passes++
		return inner(ctx, id, after)
	}
	do(t, handlerOf(t, svc), "GET", one, nil)
	if passes != 2 { // stdout and stderr
		t.Errorf("%d passes", passes)
	}
}
