package mcpfrontend

import (
	"context"
	"encoding/base64"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// newContext makes a context and returns a func that calls a tool with it.
func newContext(t *testing.T, c *client, more map[string]any) func(tool string, args map[string]any) answer {
	t.Helper()
	args := map[string]any{"name": "n"}
	for name, value := range more {
		args[name] = value
	}
	made := c.call("create_context", args)
	id := made.fields["context_id"]
	if id == nil {
		t.Fatal(made)
	}
	return func(tool string, args map[string]any) answer {
		t.Helper()
		all := map[string]any{"context_id": id}
		for name, value := range args {
			all[name] = value
		}
		return c.call(tool, all)
	}
}

func TestAContextGetsItsPackages(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Contexts.Requirements = []string{"probe", "Other_Probe==1.0"} })
	packages := func(call func(string, map[string]any) answer) string {
		t.Helper()
		a := call("install_packages", map[string]any{"packages": []string{"last==3.0"}})
		if a.isError {
			t.Fatal(a)
		}
		return text(a.fields["packages"])
	}
	call := newContext(t, c, map[string]any{"requirements": []string{"other.probe==2.0", "mine==1.5"}})
	if got := packages(call); got != `["last==3.0","mine==1.5","other.probe==2.0","probe==1.0.0"]` {
		t.Error(got)
	}
	if a := call("run_code", map[string]any{"code": "print x", "requirements": []string{"late==4.0"}}); a.fields["success"] != true {
		t.Error(a)
	}
	if got := packages(call); !strings.Contains(got, "late==4.0") {
		t.Error(got)
	}
	// Packages are for Python only.
	newContext(t, c, map[string]any{"language": "javascript"})
	for tool, args := range map[string]map[string]any{
		"install_packages": {"packages": []string{"--index-url x"}}, "run_code": {"code": "print x", "requirements": []string{"a\nb"}},
	} {
		if a := call(tool, args); !a.isError || !strings.Contains(a.text, `"INVALID_PARAMS"`) || !strings.Contains(a.text, "[0] must be one requirement") {
			t.Errorf("%s: %v", tool, a)
		}
	}
	if a := call("install_packages", map[string]any{"packages": []string{"no-such-package"}}); !a.isError || !strings.Contains(a.text, "packages: ") {
		t.Error(a)
	}
	if a := c.call("create_context", map[string]any{"name": "n", "requirements": []string{"no-such-package"}}); !a.isError || !strings.Contains(a.text, "requirements: ") {
		t.Error(a)
	}
}

func TestTimeoutInterruptAndRestart(t *testing.T) {
	patient := func(o *engine.Options) { // code that has not stopped after its grace loses its state
		o.Limits.Default.KillGraceSeconds, o.Limits.Max.KillGraceSeconds = 60, 60
	}
	c := serveTest(t, newService(t, fake.Options{}, patient), nil)
	call := newContext(t, c, nil)
	call("run_code", map[string]any{"code": "set x 1"})
	id := call("interrupt_context", nil).fields["context_id"]
	a := call("run_code", map[string]any{"code": "hang", "timeout_ms": 50})
	if a.fields["success"] != false || !strings.HasSuffix(a.fields["note"].(string), ": raise timeout_ms, or do less in one call. The state is kept.") {
		t.Error(a)
	}
	if a := call("run_code", map[string]any{"code": "hang", "timeout_ms": -1}); !strings.Contains(a.text, "timeout_ms: must not be negative (got -1)") {
		t.Error(a)
	}
	if a := call("interrupt_context", nil); a.fields["interrupted"] != false || a.fields["status"] != "active" {
		t.Error(a)
	}
	if a := call("run_code", map[string]any{"code": "value x"}); a.fields["result"] != "1" {
		t.Errorf("the state is gone: %v", a)
	}
	ended := make(chan answer, 1)
	other := *c
	other.id = 1000
	go func() { ended <- other.call("run_code", map[string]any{"context_id": id, "code": "hang"}) }()
	awaittest.Until(t, "an interrupt of the code", func() bool { return call("interrupt_context", nil).fields["interrupted"] == true })
	if a := <-ended; a.fields["note"] != "The code was cancelled. The state is kept." {
		t.Error(a)
	}
	call("write_context_file", map[string]any{"path": "f", "content": "x"})
	if a := call("restart_context", nil); a.fields["status"] != "active" || !strings.Contains(a.fields["message"].(string), "files are there") {
		t.Error(a)
	}
	if a := call("run_code", map[string]any{"code": "value x"}); a.fields["success"] != false {
		t.Errorf("the state is there: %v", a)
	}
	if a := call("read_context_file", map[string]any{"path": "f"}); a.fields["content"] != "x" {
		t.Error(a)
	}
	call("restart_context", map[string]any{"wipe": true})
	if a := call("read_context_file", map[string]any{"path": "f"}); !a.isError {
		t.Error(a)
	}
	call("stop_context", nil)
	for _, tool := range []string{"interrupt_context", "restart_context"} {
		if a := call(tool, nil); !a.isError || !strings.Contains(a.text, `"CONTEXT_NOT_FOUND"`) {
			t.Errorf("%s of a stopped context: %v", tool, a)
		}
		if a := c.call(tool, map[string]any{"context_id": "ctx-1"}); !a.isError || !strings.Contains(a.text, `"CONTEXT_NOT_FOUND"`) {
			t.Errorf("%s: %v", tool, a)
		}
		if a := c.call(tool, map[string]any{"context_id": ""}); !a.isError || !strings.Contains(a.text, `"INVALID_PARAMS"`) {
			t.Errorf("%s: %v", tool, a)
		}
	}
}

func TestSmallFilesGoInAndOut(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.MaxResultBytes = 1000 })
	call := newContext(t, c, nil)
	png := string(fixture(t))
	for _, f := range []struct{ path, content, encoding string }{
		{"data/rows.csv", "a,ü\n1,2\n", ""}, {"plot.png", base64.StdEncoding.EncodeToString([]byte(png)), "base64"}, {"raw.bin", "AP\n 8=\r\n", "base64"},
		{"long.txt", strings.Repeat("0123456789ü", 200), "text"},
	} {
		if a := call("write_context_file", map[string]any{"path": f.path, "content": f.content, "encoding": f.encoding}); a.isError || a.fields["path"] != f.path {
			t.Fatal(a)
		}
	}
	read := func(path string) answer { return call("read_context_file", map[string]any{"path": path}) }
	if a := read("data/rows.csv"); a.fields["content"] != "a,ü\n1,2\n" || a.fields["encoding"] != nil || a.fields["next_offset"] != nil || a.fields["size_bytes"] != 9.0 {
		t.Error(a)
	}
	if a := read("raw.bin"); a.fields["content"] != "AP8=" || a.fields["encoding"] != "base64" {
		t.Error(a)
	}
	if a := call("read_context_file", map[string]any{"path": "raw.bin", "offset": 2}); a.isError || a.fields["content"] != nil || a.fields["next_offset"] != nil {
		t.Errorf("from the end on: %v", a)
	}
	if a := call("read_context_file", map[string]any{"path": "plot.png", "offset": 1}); len(a.content) != 1 || a.fields["content"] == nil || a.fields["encoding"] != "base64" {
		t.Errorf("a part of an image is no image: %v", a)
	}
	a := read("plot.png")
	if len(a.content) != 2 || a.content[1].(map[string]any)["mimeType"] != "image/png" || a.content[1].(map[string]any)["data"] != base64.StdEncoding.EncodeToString([]byte(png)) || a.fields["content"] != nil {
		t.Error(a)
	}
	whole := ""
	for at, pieces := 0.0, 0; pieces == 0 || at > 0; pieces++ {
		a := call("read_context_file", map[string]any{"path": "long.txt", "offset": at})
		if a.isError || pieces > 3 {
			t.Fatal(a)
		}
		whole += a.fields["content"].(string)
		at, _ = a.fields["next_offset"].(float64)
	}
	if whole != strings.Repeat("0123456789ü", 200) {
		t.Errorf("the pieces are %d bytes", len(whole))
	}
	for name, test := range map[string]struct {
		tool string
		args map[string]any
		want string
	}{
		"no such file":    {"read_context_file", map[string]any{"path": "none"}, `path: there is no file \"none\" in the context`},
		"out of it":       {"read_context_file", map[string]any{"path": "../x"}, "path: must stay inside"},
		"an offset":       {"read_context_file", map[string]any{"path": "raw.bin", "offset": 3}, "offset: must be between 0 and 2"},
		"no path":         {"write_context_file", map[string]any{"content": "x"}, "path: must not be empty"},
		"no base64":       {"write_context_file", map[string]any{"path": "x", "content": "!", "encoding": "base64"}, "content: must be base64"},
		"an encoding":     {"write_context_file", map[string]any{"path": "x", "content": "!", "encoding": "hex"}, "encoding: must be one of text, base64"},
		"writing outside": {"write_context_file", map[string]any{"path": "/etc/x", "content": "x"}, "path: must stay inside"},
	} {
		if a := call(test.tool, test.args); !a.isError || !strings.Contains(a.text, test.want) || !strings.Contains(a.text, `"INVALID_PARAMS"`) {
			t.Errorf("%s: %v", name, a)
		}
	}
	for _, tool := range []string{"read_context_file", "write_context_file"} {
		if a := c.call(tool, map[string]any{"context_id": "ctx-1", "path": "x", "content": "x"}); !a.isError {
			t.Errorf("%s: %v", tool, a)
		}
	}
	if a := c.call("read_context_file", map[string]any{"context_id": "ctx-1", "path": "x"}); !strings.Contains(a.text, `"CONTEXT_NOT_FOUND"`) {
		t.Error(a)
	}
}

// fixture returns a PNG.
func fixture(t *testing.T) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(fixtureImage)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInstalledPackagesGetNoLinks(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	call := newContext(t, c, nil)
	a := call("run_code", map[string]any{"code": strings.Join([]string{
		"write-file libs/probe/__init__.py x", "write-file libs/probe-1.0.dist-info/METADATA x", "write-file libs/probe.py x",
		"write-file env/lib/python3.13/site-packages/a.py x", "write-file node_modules/a/b.js x", "write-file out/rows.csv x",
	}, "\n")})
	uris, others := links(t, a)
	if len(uris) != 1 || !strings.HasSuffix(uris[0], "/out/rows.csv") || len(others) != 0 {
		t.Errorf("%q %v", uris, others)
	}
}

// ending is a Service of which every Execution writes output and ends with result.
type ending struct {
	executor.Service
	output executor.Output
	result executor.Result
}

func (ending) Submit(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
	return executor.Execution{ID: "exe_1"}, nil
}

func (e ending) Events(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		_ = yield(executor.Event{Seq: 1, Body: e.output}, nil) && yield(executor.Event{Seq: 2, Body: executor.Finished{Result: e.result}}, nil)
	}
}

// lost is the Result of a program whose backend ends while it runs.
var lost = executor.Result{
	Status: executor.StatusLost, SessionState: executor.SessionStateLost,
	Failure: &executor.Failure{Phase: executor.PhaseRun, Code: executor.Unavailable, Message: "the backend ended"},
}

func TestAContextThatIsLostWhileCodeRunsSaysWhatToDo(t *testing.T) {
	c := serveTest(t, ending{Service: newService(t, fake.Options{}), result: lost}, nil)
	a := newContext(t, c, nil)("run_code", map[string]any{"code": "print x"})
	if !a.isError || !strings.Contains(a.text, "the backend ended; the context is lost: create a new one with create_context") {
		t.Error(a)
	}
}

func TestWhatACommandCannotTellIsToldForIt(t *testing.T) {
	for want, result := range map[string]executor.Result{
		errWaitFailed:  lost,
		errSpawnFailed: {Status: executor.StatusFailed, Failure: &executor.Failure{Phase: executor.PhaseStart, Code: executor.NotFound, Message: "the backend ended"}},
	} {
		c := serveTest(t, ending{Service: newService(t, fake.Options{}), result: result}, nil)
		a := c.call("execute", map[string]any{"command": "x"})
		if !a.isError || a.text != want || len(a.content) != 2 || !strings.Contains(text(a.content[1]), "the backend ended") {
			t.Errorf("%s: %v", want, a)
		}
	}
}

func TestImagesAreBoundedAndTheRestIsCounted(t *testing.T) {
	t.Parallel()
	image := executor.Display{Data: map[string][]byte{"image/png": make([]byte, maxImageBytes/2)}}
	small := executor.Display{Data: map[string][]byte{"image/png": nil}}
	list := pictures([]executor.Display{image, image, image, small, image})
	if len(list) != 4 || !strings.Contains(text(list[3]), "2 images are left out") {
		t.Errorf("%d parts, the last is %.200s", len(list), text(list[len(list)-1]))
	}
}

// listing is a Service with the given Sessions.
type listing struct {
	executor.Service
	sessions []executor.Session
}

func (l listing) ListSessions(context.Context) ([]executor.Session, error) { return l.sessions, nil }

func TestAContextThatWasNeverUsedWasLastUsedWhenItWasMade(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := executor.Session{ID: "ctx-1", Language: executor.LanguagePython, Status: executor.SessionActive, CreatedAt: made}
	two := one
	two.ID, two.LastUsed = "ctx-2", made.Add(time.Hour)
	c := serveTest(t, listing{newService(t, fake.Options{}), []executor.Session{one, two}}, nil)
	list, _ := c.call("list_contexts", nil).fields["contexts"].([]any)
	for i, want := range []string{"2026-01-02T03:04:05Z", "2026-01-02T04:04:05Z"} {
		if len(list) != 2 || list[i].(map[string]any)["last_used"] != want {
			t.Errorf("%d was last used at %s: %v", i, want, list)
		}
	}
}
