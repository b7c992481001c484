package httpfrontend

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// taking returns a run's Service and what its Submit was given.
type taken struct {
	spec             executor.Spec
	workspace, stdin string
	hasWorkspace     bool
}

func taking(r *run) (*stub, *taken) {
	got := &taken{}
	svc := r.service()
	svc.submit = func(_ context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
		got.spec, got.hasWorkspace = spec, in.Workspace != nil
		var err error
		if got.workspace, err = readSource(in.Workspace); err != nil {
			return executor.Execution{}, err
		}
		if got.stdin, err = readSource(in.Stdin); err != nil {
			return executor.Execution{}, err
		}
		return r.state(), nil
	}
	return svc, got
}

func TestSyncAnswersWithTheResult(t *testing.T) {
	t.Parallel()
	w := postJSON(t, handlerOf(t, hello().service()), "/api/v1/exec/sync", `{"code":"print(1)"}`)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	want := `{"execution_id":"` + testID + `","session_id":null,"status":"succeeded","exit_code":0,"signal":null,"stdout":"hello\n","stderr":"warn\n","stdout_base64":null,"stderr_base64":null,"displays":[],"displays_truncated":false,` +
		`"stdout_bytes":6,"stderr_bytes":5,"stdout_truncated":false,"stderr_truncated":false,"displays_dropped":0,"session_state":null,"attempts":1,"created_at":"2026-11-21T12:00:00Z","started_at":"2026-11-21T12:00:02Z",` +
		`"finished_at":"2026-11-21T12:00:05Z","duration_seconds":0.025,"cpu_seconds":0.01,"peak_memory_bytes":9437184,"peak_resident_bytes":14680064,` +
		`"phases":{"queue_seconds":0,"prepare_seconds":0,"run_seconds":0,"collect_seconds":0},"backend":"fake","python_version":"3.12.1","start":null,"resolved_requirements":[],"artifacts":[],"error":null}` + "\n"
	if w.Body.String() != want {
		t.Fatalf("got\n%s, want\n%s", w.Body, want)
	}
	if w.Header().Get("Content-Length") != strconv.Itoa(len(want)) || !w.Flushed {
		t.Errorf("Content-Length %q, flushed %v: the client would wait for our log lines", w.Header().Get("Content-Length"), w.Flushed)
	}
}

func TestAsyncAnswersWithTheID(t *testing.T) {
	t.Parallel()
	svc, got := taking(newRun().add(executor.Queued{}))
	w := postForm(t, handlerOf(t, svc), "/api/v1/exec/async", part{"metadata", `{}`, nil}, part{"tar", string(tarOf("main.py", "x")), nil})
	if w.Code != 202 || strings.TrimSpace(w.Body.String()) != `{"execution_id":"`+testID+`"}` || w.Header().Get("Location") != "/api/v1/executions/"+testID {
		t.Fatalf("%d %s %v", w.Code, w.Body, w.Header())
	}
	if !got.spec.Durable {
		t.Fatal("async is not durable")
	}
}

func TestPartsInEveryOrder(t *testing.T) {
	t.Parallel()
	small := tarOf("main.py", "print(1)")
	large := tarOf("main.py", "print(1)", "data.bin", strings.Repeat("data", 100_000))
	input := strings.Repeat("in", 700_000) // more than stays in memory
	meta := part{"metadata", `{"entrypoint":"main.py"}`, nil}
	stdin := part{"stdin", input, nil}
	for name, archive := range map[string][]byte{"small": small, "large": large} {
		tarPart := part{"tar", string(archive), nil}
		for order, parts := range map[string][]part{
			"metadata, tar":        {meta, tarPart},
			"tar, metadata":        {tarPart, meta},
			"metadata, tar, stdin": {meta, tarPart, stdin},
			"metadata, stdin, tar": {meta, stdin, tarPart},
			"stdin, metadata, tar": {stdin, meta, tarPart},
			"stdin, tar, metadata": {stdin, tarPart, meta},
			"tar, stdin, metadata": {tarPart, stdin, meta},
			"tar, metadata, stdin": {tarPart, meta, stdin},
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				t.Parallel()
				svc, got := taking(hello())
				if w := postForm(t, handlerOf(t, svc), "/api/v1/exec/sync", parts...); w.Code != 200 {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				want := ""
				if len(parts) == 3 {
					want = input
				}
				if got.workspace != string(archive) || got.stdin != want || got.spec.Entrypoint != "main.py" {
					t.Fatalf("tar of %d bytes, stdin of %d, spec %+v", len(got.workspace), len(got.stdin), got.spec)
				}
			})
		}
	}
}

func TestMetadataMayBeAFile(t *testing.T) {
	t.Parallel()
	const body = "--b\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"m.json\"\r\nContent-Type: application/json\r\n\r\n{\"code\":\"x\"}\r\n--b--\r\n"
	svc, got := taking(hello())
	w := do(t, handlerOf(t, svc), http.MethodPost, "/api/v1/exec/sync", strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b")
	if w.Code != 200 || got.spec.Code != "x" || got.hasWorkspace {
		t.Fatalf("%d %s %+v", w.Code, w.Body, got)
	}
}

func TestStdinInMetadata(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"command":["cat"],"stdin":"typed"}`); w.Code != 200 || got.stdin != "typed" {
		t.Fatalf("%d %s %+v", w.Code, w.Body, got)
	}
}

func TestJSONFilesBecomeATar(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	body := `{"files":{"z.py":"print(1)","a.py":"","data/b":{"base64":"` + base64.StdEncoding.EncodeToString([]byte{0, 255}) + `"},"gone":null},"args":["x"]}`
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", body); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	// The order is the body's: it decides which .py file is the entrypoint.
	if want := string(tarOf("z.py", "print(1)", "a.py", "", "data/b", "\x00\xff")); got.workspace != want {
		t.Fatalf("tar %q", got.workspace)
	}
	if got.spec.Detect == nil || !*got.spec.Detect {
		t.Fatal("the files are not looked into")
	}
	svc, got = taking(hello())
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"files":{"main.py":""},"detect":false,"requirements_txt":"x"}`); w.Code != 200 || got.spec.Detect == nil || *got.spec.Detect {
		t.Fatalf("%d %s %+v", w.Code, w.Body, got.spec)
	}
}

func TestJSONThatIsNoProgramIs422(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	for name, tt := range map[string]struct{ body, field string }{
		"nothing to run":               {`{}`, "code"},
		"only arguments":               {`{"args":["x"]}`, "code"},
		"code beside main.py":          {`{"code":"x","files":{"main.py":"y"}}`, "files.main.py"},
		"code beside a folder main.py": {`{"code":"x","files":{"main.py/y":"z"}}`, "files.main.py"},
		"no file that is Python":       {`{"files":{"a.txt":""}}`, "entrypoint"},
		"no file at all":               {`{"files":{}}`, "entrypoint"},
		"an entrypoint that is away":   {`{"files":{"a.py":""},"entrypoint":"b.py"}`, "entrypoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, postJSON(t, h, "/api/v1/exec/sync", tt.body), 422, executor.Invalid, tt.field)
		})
	}
}

func TestSubmitErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    *executor.Error
		status int
	}{
		{&executor.Error{Code: executor.Invalid, Message: "bad", Fields: []executor.FieldError{{Field: "config.memory_mb", Message: "too much"}, {Field: "entrypoint", Message: "bad"}}}, 422},
		{&executor.Error{Code: executor.Denied, Message: "no", Fields: []executor.FieldError{{Field: "host_directory", Message: "no"}}}, 403},
		{&executor.Error{Code: executor.Conflict, Message: "another Spec"}, 409},
		{&executor.Error{Code: executor.Exhausted, Message: "full"}, 429},
		{&executor.Error{Code: executor.Unavailable, Message: "down"}, 503},
		{&executor.Error{Code: executor.Unimplemented, Message: "no", Fields: []executor.FieldError{{Field: "config.disk_mb", Message: "no"}}}, 501},
	} {
		t.Run(string(tt.err.Code), func(t *testing.T) {
			t.Parallel()
			svc := hello().service()
			svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
				return executor.Execution{}, tt.err
			}
			var fields []string
			for _, f := range tt.err.Fields {
				fields = append(fields, f.Field)
			}
			for _, target := range []string{"/api/v1/exec/sync", "/api/v1/exec/async"} {
				p := wantProblem(t, postJSON(t, handlerOf(t, svc), target, `{"code":"x"}`), tt.status, tt.err.Code, fields...)
				if errs, ok := p["errors"].([]any); ok && !strings.HasPrefix(errs[0].(map[string]any)["location"].(string), "body.") {
					t.Fatalf("%v", p)
				}
			}
		})
	}
}

func TestWhenAFinishedExecutionIsAnError(t *testing.T) {
	t.Parallel()
	withTar := []part{{"metadata", "{}", nil}, {"tar", string(tarOf("main.py", "x")), nil}}
	codeOnly := []part{{"metadata", `{"code":"x"}`, nil}}
	for _, tt := range []struct {
		name   string
		parts  []part
		log    []executor.Body
		status int
		code   executor.Code
		field  string
	}{
		{"a program that fails is a result", withTar, []executor.Body{executor.Started{}, done(3)}, 200, "", ""},
		{"a hostile tar is 422", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "tar")}, 422, executor.Invalid, "tar"},
		{"a broken tar that nobody names is 422", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "")}, 422, executor.Invalid, "tar"},
		{"a tar without an entrypoint is 422", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "entrypoint")}, 422, executor.Invalid, "entrypoint"},
		{"a requirement that cannot be had is a result", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "requirements_txt")}, 200, "", ""},
		{"a command that fails is a result", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "pre_commands")}, 200, "", ""},
		{"a requirement of mere code is a result", codeOnly, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "")}, 200, "", ""},
		{"a field that turns out wrong is 422", codeOnly, []executor.Body{failed(executor.PhasePrepare, executor.Invalid, "python_version")}, 422, executor.Invalid, "python_version"},
		{"an argv that cannot start is a result", withTar, []executor.Body{failed(executor.PhaseStart, executor.Invalid, "command")}, 200, "", ""},
		{"a preparation that went wrong is a result", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Unavailable, "")}, 200, "", ""},
		{"a late refusal is 501", codeOnly, []executor.Body{failed(executor.PhasePrepare, executor.Unimplemented, "docker_image")}, 501, executor.Unimplemented, "docker_image"},
		{"a refusal of no field is not the tar's", withTar, []executor.Body{failed(executor.PhasePrepare, executor.Unimplemented, "")}, 501, executor.Unimplemented, ""},
		{"a late denial is 403", codeOnly, []executor.Body{failed(executor.PhaseNone, executor.Denied, "host_directory")}, 403, executor.Denied, "host_directory"},
		{"a late invalid is 422", codeOnly, []executor.Body{failed(executor.PhaseNone, executor.Invalid, "entrypoint")}, 422, executor.Invalid, "entrypoint"},
		{"what a program that ran was refused is a result", withTar, []executor.Body{executor.Started{}, failed(executor.PhaseRun, executor.Unimplemented, "")}, 200, "", ""},
		{"lost is a result", withTar, []executor.Body{executor.Started{}, executor.Finished{Result: executor.Result{Status: executor.StatusLost, Failure: &executor.Failure{Code: executor.Unavailable, Phase: executor.PhaseRun, Message: "gone"}}}}, 200, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRun().add(executor.Queued{}).add(tt.log...)
			w := postForm(t, handlerOf(t, r.service()), "/api/v1/exec/sync", tt.parts...)
			if tt.status == 200 {
				if w.Code != 200 || decode(t, w.Body.Bytes())["status"] != string(r.state().Status) {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				return
			}
			p := wantProblem(t, w, tt.status, tt.code)
			where, errs := "metadata", "<nil>"
			if tt.field == "tar" {
				where = "multipart"
			}
			if tt.field != "" {
				errs = fmt.Sprintf("[map[field:%[1]s location:%[2]s.%[1]s message:it is bad]]", tt.field, where)
			}
			if p["execution_id"] != testID || fmt.Sprint(p["errors"]) != errs {
				t.Fatalf("%v, want the errors %s", p, errs)
			}
		})
	}
}

func TestLostSaysUnavailable(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{}, executor.Finished{Result: executor.Result{Status: executor.StatusLost, CPU: -1, Failure: &executor.Failure{Code: executor.Unavailable, Phase: executor.PhaseRun, Message: "gone"}}})
	m := decode(t, postJSON(t, handlerOf(t, r.service()), "/api/v1/exec/sync", `{"code":"x"}`).Body.Bytes())
	e, _ := m["error"].(map[string]any)
	if m["status"] != "lost" || e["code"] != "unavailable" || e["phase"] != "run" || m["exit_code"] != nil || m["cpu_seconds"] != nil {
		t.Fatalf("%v", m)
	}
}

func TestAnErrorBehindTheTarIsTheRequests(t *testing.T) {
	t.Parallel()
	large := string(tarOf("data.bin", strings.Repeat("d", 200_000)))
	for _, tt := range []struct {
		name     string
		parts    []part
		cut      int
		status   int
		location string
	}{
		{"an unknown part", []part{{"metadata", "{}", nil}, {"tar", large, nil}, {"more", "x", nil}}, 0, 422, "multipart.more"},
		{"stdin twice", []part{{"metadata", `{"stdin":"x"}`, nil}, {"tar", large, nil}, {"stdin", "x", nil}}, 0, 422, "multipart.stdin"},
		{"a tar that is cut by the connection", []part{{"metadata", "{}", nil}, {"tar", large, nil}}, 90_000, 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRun().add(executor.Queued{})
			svc := r.service()
			killed := make(chan string, 1)
			svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
				err := consume(in)
				return r.state(), errors.Join(err)
			}
			svc.cancel = func(_ context.Context, id string) (executor.Execution, error) {
				killed <- id
				return r.state(), nil
			}
			body, contentType := form(tt.parts...)
			w := do(t, handlerOf(t, svc), http.MethodPost, "/api/v1/exec/sync", bytes.NewReader(body[:len(body)-tt.cut]), "Content-Type", contentType)
			p := wantProblem(t, w, tt.status, executor.Invalid)
			if p["execution_id"] != testID || (tt.location != "") != strings.Contains(fmt.Sprint(p["errors"]), "location:"+tt.location) {
				t.Fatalf("%v", p)
			}
			if id := awaittest.Recv(t, "the Execution is killed", killed); id != testID {
				t.Fatal(id)
			}
		})
	}
}

func TestAnIdempotentReplayIsNotKilledByItsSecondClient(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{"it leaves while it waits": nil, "it leaves while it sends": executor.Errorf(executor.Unavailable, "the upload broke")} {
		r := newRun().add(executor.Queued{}) // created long before this request
		svc := r.service()
		svc.cancel = func(context.Context, string) (executor.Execution, error) {
			t.Errorf("%s: killed", name)
			return executor.Execution{}, nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
			cancel(nil)
			return r.state(), broken
		}
		req := newPost(t, "/api/v1/exec/sync", strings.NewReader(`{"code":"x","idempotency_key":"k"}`), "application/json")
		if p := wantProblem(t, record(handlerOf(t, svc), req.WithContext(ctx)), 503, executor.Unavailable); p["execution_id"] != testID {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func TestAnExecutionWithAKeyIsKilledByTheClientThatMadeIt(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{})
	svc := r.service()
	killed := ""
	svc.cancel = func(_ context.Context, id string) (executor.Execution, error) {
		killed = id
		return r.state(), nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
		cancel(nil)
		x := r.state()
		x.CreatedAt = time.Now()
		return x, nil
	}
	req := newPost(t, "/api/v1/exec/sync", strings.NewReader(`{"code":"x","idempotency_key":"k"}`), "application/json")
	wantProblem(t, record(handlerOf(t, svc), req.WithContext(ctx)), 503, executor.Unavailable)
	if killed != testID {
		t.Errorf("killed %q", killed)
	}
}

func TestASubmitThatFailsWithAnIDIsKilled(t *testing.T) {
	t.Parallel()
	svc, submitted, killed := endless(false)
	svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
		submitted <- struct{}{}
		return executor.Execution{}, &executor.Error{Code: executor.Unavailable, Message: "the upload broke", ExecutionID: testID}
	}
	if p := wantProblem(t, postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"code":"x"}`), 503, executor.Unavailable); p["execution_id"] != testID {
		t.Errorf("%v", p)
	}
	select {
	case <-killed:
	default:
		t.Error("an Execution that only the error names runs on")
	}
}

func TestALogThatEndsBeforeItsExecutionIsNoResult(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leaves bool
		status int
		code   executor.Code
	}{
		"the log is broken":   {false, 500, executor.Internal},
		"the client has gone": {true, 503, executor.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc, _, killed := endless(true)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
				return func(func(executor.Event, error) bool) {
					if tt.leaves {
						cancel(nil)
					}
				}
			}
			req := newPost(t, "/api/v1/exec/sync", strings.NewReader(`{"code":"x"}`), "application/json")
			w := record(handlerOf(t, svc), req.WithContext(ctx))
			if p := wantProblem(t, w, tt.status, tt.code); p["execution_id"] != testID {
				t.Errorf("%v", p)
			}
			awaittest.Closed(t, "the Execution is killed", killed)
		})
	}
}
