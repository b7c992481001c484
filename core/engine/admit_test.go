package engine

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

var workspace = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }}

// TestEveryBadFieldIsNamed: nothing is opened and nothing made for a Spec that is wrong.
func TestEveryBadFieldIsNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20+1)
	for _, test := range []struct {
		name   string
		spec   executor.Spec
		in     executor.Input
		fields string
	}{
		{name: "nothing to run", fields: "code"},
		{name: "an entrypoint without files", spec: executor.Spec{Entrypoint: "main.py"}, fields: "entrypoint"},
		{name: "code and command", spec: executor.Spec{Code: "x", Command: []string{"ls"}}, fields: "command"},
		{name: "code under another name", spec: executor.Spec{Code: "x", Entrypoint: "app.py"}, fields: "entrypoint"},
		{name: "command and entrypoint", spec: executor.Spec{Command: []string{"ls"}, Entrypoint: "a.py"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "an empty command", spec: executor.Spec{Command: []string{""}}, fields: "command[0]"},
		{name: "an entrypoint outside", spec: executor.Spec{Entrypoint: "../main.py"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "an absolute entrypoint", spec: executor.Spec{Entrypoint: "/main.py"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "a notebook as entrypoint", spec: executor.Spec{Entrypoint: "a.ipynb"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "text as entrypoint", spec: executor.Spec{Entrypoint: "docs/notes.txt"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "an unclean entrypoint", spec: executor.Spec{Entrypoint: "a//main.py"}, in: executor.Input{Workspace: workspace}, fields: "entrypoint"},
		{name: "NUL bytes", spec: executor.Spec{Command: []string{"a\x00"}, Args: []string{"b", "c\x00"}, Env: map[string]string{"D": "\x00"}}, fields: "command[0] args[1] env.D"},
		{name: "what is no UTF-8", spec: executor.Spec{Code: "\xff", Args: []string{"\xff"}}, fields: "code args[0]"},
		{name: "bad names of variables", spec: executor.Spec{Code: "x", Env: map[string]string{"": "1", "A=B": "2", "1C": "3", "OK_1": "4"}}, fields: "env env env"},
		{name: "too long an argument", spec: executor.Spec{Code: "x", Args: []string{long[:maxArgument+1]}}, fields: "args[0]"},
		{name: "too many bytes of arguments", spec: executor.Spec{Code: "x", Args: []string{long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000], long[:100000]}}, fields: "args"},
		{name: "long texts", spec: executor.Spec{Code: "x", Requirements: long, IdempotencyKey: long[:256], Image: long[:600]}, fields: "requirements_txt docker_image idempotency_key"},
		{name: "limits above their maxima", spec: executor.Spec{Code: "x", Limits: executor.Limits{
			Timeout: 25 * time.Hour, CPUTime: 25 * time.Hour, MemoryBytes: 65537 << 20, DiskBytes: 1 << 40, CPUShares: 262145, PIDs: 4097, OutputBytes: 1<<30 + 1, KillGrace: 2 * time.Minute,
		}}, fields: "config.timeout_seconds config.cpu_seconds config.memory_mb config.disk_mb config.pids config.kill_grace_seconds config.cpu_shares config.output_bytes"},
		{name: "negative limits", spec: executor.Spec{Code: "x", Limits: executor.Limits{
			Timeout: -2, CPUTime: -1, MemoryBytes: -1, DiskBytes: -1, CPUShares: 1, PIDs: -1, OutputBytes: -1, KillGrace: -1,
		}}, fields: "config.timeout_seconds config.cpu_seconds config.memory_mb config.disk_mb config.pids config.kill_grace_seconds config.cpu_shares config.output_bytes"},
		{name: "unknown words", spec: executor.Spec{Code: "x", Language: "cobol", Interpreter: "mine", Network: "maybe"}, fields: "language interpreter config.network_disabled"},
		{name: "an inexact version", spec: executor.Spec{Code: "x", PythonVersion: "3"}, fields: "python_version"},
		{name: "a version too exact", spec: executor.Spec{Code: "x", PythonVersion: "3.12.1"}, fields: "python_version"},
		{name: "an image of another version", spec: executor.Spec{Code: "x", PythonVersion: "3.12", Image: "python:3.13-slim"}, fields: "docker_image"},
		{name: "an image that is none", spec: executor.Spec{Code: "x", Image: "python 3; rm -rf"}, fields: "docker_image"},
		{name: "requirements of the system's interpreter", spec: executor.Spec{Code: "x", Interpreter: executor.InterpreterSystem, Requirements: "a"}, fields: "requirements_txt"},
		{name: "globs that lead outside or nowhere", spec: executor.Spec{Code: "x", Outputs: []string{"ok/**", "../x", "/etc/*", "[", ""}}, fields: "outputs[1] outputs[2] outputs[3] outputs[4]"},
		{name: "too quick a sample", spec: executor.Spec{Code: "x", SampleInterval: time.Millisecond}, fields: "sample_interval_seconds"},
		{name: "an unknown backend", spec: executor.Spec{Code: "x", Backend: "nowhere"}, fields: "backend"},
		{name: "metadata that is no TOML", spec: executor.Spec{Code: "# /// script\n# dependencies = [\n# ///\n"}, fields: "code"},
		{name: "metadata that requires too much", spec: executor.Spec{Code: "# /// script\n# dependencies = [\"" + strings.Repeat("a", maxRequirements) + "\"]\n# ///\n"}, fields: "code"},
		{name: "a dependency that is an option", spec: executor.Spec{Code: "# /// script\n# dependencies = [\"-r /etc/passwd\"]\n# ///\n"}, fields: "code"},
		{name: "a version that is none", spec: executor.Spec{Code: "# /// script\n# requires-python = \"new\"\n# ///\n"}, fields: "code"},
		{name: "two things at once", spec: executor.Spec{Args: []string{"\x00"}, Backend: "nowhere"}, fields: "code args[0] backend"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, setup{})
				_, err := r.Submit(t.Context(), test.spec, test.in)
				wantCode(t, err, executor.Invalid, strings.Fields(test.fields)...)
				r.wantIdle()
			})
		})
	}
}

func TestTheLinesOfAProgramThatDisplaysAreTheUsers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		code := "#/// script\n# dependencies = []\n# ///\n"
		for _, code := range []string{code, executor.DisplayingProgram(code)} {
			_, err := r.Submit(t.Context(), executor.Spec{Code: code}, executor.Input{})
			if want := `code: script metadata: line 1 must be "# /// script"`; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	})
}

func TestALimitAboveItsMaximumNamesBothNumbers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		_, err := r.Submit(t.Context(), executor.Spec{Code: "x", Limits: executor.Limits{MemoryBytes: 70000 << 20}}, executor.Input{})
		if want := "config.memory_mb: must be at most 65536 (got 70000)"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// TestWhatABackendCannotDoIsRefused takes each capability away in turn.
func TestWhatABackendCannotDoIsRefused(t *testing.T) {
	t.Parallel()
	all := fake.DefaultCapabilities()
	all.HostDirectories, all.Scripts = true, true
	for _, test := range []struct {
		field string
		take  func(*executor.Capabilities)
		ask   executor.Spec
	}{
		{"config.memory_mb", func(c *executor.Capabilities) { c.Memory = false }, executor.Spec{Limits: executor.Limits{MemoryBytes: 1 << 20}}},
		{"config.disk_mb", func(c *executor.Capabilities) { c.Disk = false }, executor.Spec{Limits: executor.Limits{DiskBytes: 1 << 20}}},
		{"config.cpu_shares", func(c *executor.Capabilities) { c.CPU = false }, executor.Spec{Limits: executor.Limits{CPUShares: 2}}},
		{"config.pids", func(c *executor.Capabilities) { c.PIDs = false }, executor.Spec{Limits: executor.Limits{PIDs: 1}}},
		{"config.network_disabled", func(c *executor.Capabilities) { c.NetworkOff = false }, executor.Spec{Network: executor.NetworkOff}},
		{"config.network_disabled", func(c *executor.Capabilities) { c.NetworkOn = false }, executor.Spec{Network: executor.NetworkOn}},
		{"command", func(c *executor.Capabilities) { c.Commands = false }, executor.Spec{Command: []string{"ls"}}},
		{"requirements_txt", func(c *executor.Capabilities) { c.Requirements = false }, executor.Spec{Requirements: "a"}},
		{"requirements_txt", func(c *executor.Capabilities) { c.Requirements = false }, executor.Spec{Code: "# /// script\n# dependencies = [\"a\"]\n# ///"}},
		{"pre_commands", func(c *executor.Capabilities) { c.PreCommands = false }, executor.Spec{PreCommands: []string{"ls"}}},
		{"interpreter", func(c *executor.Capabilities) { c.SystemInterpreter = false }, executor.Spec{Interpreter: executor.InterpreterSystem}},
		{"outputs", func(c *executor.Capabilities) { c.Artifacts = false }, executor.Spec{Outputs: []string{"a"}}},
		{"outputs_changed", func(c *executor.Capabilities) { c.Artifacts = false }, executor.Spec{OutputsChanged: true}},
		{"sample_interval_seconds", func(c *executor.Capabilities) { c.MemorySamples = false }, executor.Spec{SampleInterval: time.Second}},
		{"host_directory", func(c *executor.Capabilities) { c.HostDirectories = false }, executor.Spec{HostDirectory: "/srv"}},
		{"script", func(c *executor.Capabilities) { c.Scripts = false }, executor.Spec{Script: "a.sh"}},
		{"docker_image", func(c *executor.Capabilities) { c.Images = false }, executor.Spec{Image: "debian"}},
		{"docker_image", func(c *executor.Capabilities) { c.Images = false }, executor.Spec{Image: "python:3.9"}},
		{"python_version", func(*executor.Capabilities) {}, executor.Spec{PythonVersion: "3.9"}},
		{"python_version", func(*executor.Capabilities) {}, executor.Spec{Code: "# /// script\n# requires-python = '<3'\n# ///"}},
		{"language", func(*executor.Capabilities) {}, executor.Spec{Language: executor.LanguageShell}},
	} {
		t.Run(test.field, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				caps := all
				r := newRig(t, setup{backend: infoBackend{capabilities: &caps}})
				spec := test.ask
				if spec.Code == "" && len(spec.Command) == 0 && spec.Script == "" {
					spec.Code = "exit 0"
				}
				trusted := as("a", executor.Scopes()...)
				if test.field != "python_version" && test.field != "language" {
					if _, err := r.Submit(trusted, spec, executor.Input{}); err != nil {
						t.Errorf("with the capability: %v", err)
					}
					test.take(&caps)
					time.Sleep(2 * infoStale)
				}
				_, err := r.Submit(trusted, spec, executor.Input{})
				code := executor.Unimplemented
				if test.field == "python_version" || test.ask.Image == "python:3.9" { // another version would do
					code = executor.Invalid
				}
				wantCode(t, err, code, test.field)
			})
		})
	}
}

// infoBackend is a backend of these capabilities whose programs succeed.
type infoBackend struct {
	runFunc
	capabilities *executor.Capabilities
}

func (b infoBackend) Info(context.Context) (executor.Info, error) {
	return executor.Info{Healthy: true, Capabilities: *b.capabilities, Images: []string{"internal/science"}}, nil
}

func (b infoBackend) Run(_ context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if job.Workspace != nil {
		if r, err := job.Workspace.Open(); err == nil {
			_, _ = io.Copy(io.Discard, r)
			_ = r.Close()
		}
	}
	return succeeded, emit(s, executor.Started{PythonVersion: job.Spec.PythonVersion, Requirements: strings.Fields(job.Spec.Requirements)})
}

func TestAnImageThatABackendMapsIsTaken(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.Images = false
		r := newRig(t, setup{backend: infoBackend{capabilities: &caps}})
		for _, image := range []string{"python:3.12", "python:3.12.4-slim", "docker.io/library/python:3.13-alpine", "internal/science"} {
			if _, err := r.Submit(t.Context(), executor.Spec{Code: "x", Image: image}, executor.Input{}); err != nil {
				t.Errorf("%s: %v", image, err)
			}
		}
	})
}

func TestWhatReachesTheHostNeedsItsScope(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		_, err := r.Submit(as("a", executor.ScopeAdmin), executor.Spec{HostDirectory: "/srv", Script: "x.sh"}, executor.Input{})
		wantCode(t, err, executor.Denied, "host_directory", "script")
		_, err = r.Submit(as("a", executor.ScopeRead), executor.Spec{Code: "x"}, executor.Input{})
		wantCode(t, err, executor.Denied)
		wantCode(t, r.Admit(as("a", executor.ScopeRead)), executor.Denied)
		_, err = r.Scripts(as("a"))
		wantCode(t, err, executor.Denied)
	})
}

func TestNobodySeesAnothersExecutions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		x := r.submit(as("alice"), "hang")
		for _, id := range []string{x.ID, "exe_0000000000000000000000000a", "../../etc/passwd", ""} {
			_, err := r.Get(as("bob"), id)
			wantCode(t, err, executor.NotFound)
			_, err = r.Cancel(as("bob"), id)
			wantCode(t, err, executor.NotFound)
			_, err = r.Artifacts(as("bob"), id)
			wantCode(t, err, executor.NotFound)
			for _, err := range r.Events(as("bob"), id, 0) {
				wantCode(t, err, executor.NotFound)
			}
		}
		if list := must(r.List(as("bob"), executor.Filter{Owner: "alice"})); len(list) != 0 {
			t.Errorf("bob sees %v", list)
		}
		admin := as("root", executor.ScopeAdmin)
		if list := must(r.List(admin, executor.Filter{})); len(list) != 1 || list[0].ID != x.ID {
			t.Errorf("the admin sees %v", list)
		}
		_, err := r.Cancel(as("alice", executor.ScopeRead), x.ID)
		wantCode(t, err, executor.Denied)
		_, err = r.Get(as("alice", executor.ScopeExec), x.ID)
		wantCode(t, err, executor.Denied)
		if got := must(r.Cancel(admin, x.ID)); got.Status != executor.StatusKilled {
			t.Errorf("cancelled: %+v", got)
		}
	})
}

func TestListPages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 100}}})
		var ids []string
		for range 7 {
			ids = append(ids, r.submit(t.Context(), "exit 0").ID)
		}
		var got []string
		f := executor.Filter{Limit: 3}
		for {
			page := must(r.List(t.Context(), f))
			for _, x := range page {
				got = append(got, x.ID)
			}
			if len(page) < 3 {
				break
			}
			f.After = page[len(page)-1].ID
		}
		for i, id := range got {
			if want := ids[len(ids)-1-i]; id != want {
				t.Errorf("place %d: %s, want %s", i, id, want)
			}
		}
		_, err := r.List(t.Context(), executor.Filter{Limit: 501, After: "x", Statuses: []executor.Status{"odd"}})
		wantCode(t, err, executor.Invalid, "limit", "after", "status")
		_, err = r.List(t.Context(), executor.Filter{Limit: -1})
		wantCode(t, err, executor.Invalid, "limit")
		if all := must(r.List(t.Context(), executor.Filter{Limit: 500})); len(all) != len(ids) {
			t.Errorf("%d on the largest page, want %d", len(all), len(ids))
		}
	})
}

func TestAnIdempotencyKeyReturnsTheFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		keyed := executor.Spec{IdempotencyKey: "k", Env: map[string]string{"A": "1", "B": "2"}}
		archive := tarOf(t, "main.py", "exit 0")
		submit := func(ctx context.Context, spec executor.Spec, content []byte) (executor.Execution, error) {
			return r.Submit(ctx, spec, executor.Input{Workspace: once(content)})
		}
		first, err := submit(t.Context(), keyed, archive)
		if err != nil {
			t.Fatal(err)
		}
		again := keyed
		again.Durable, again.Language = true, executor.LanguagePython
		for _, spec := range []executor.Spec{keyed, again} {
			if x, err := submit(t.Context(), spec, archive); err != nil || x.ID != first.ID {
				t.Errorf("got %s, %v, want %s", x.ID, err, first.ID)
			}
		}
		other := keyed
		other.Args = []string{"more"}
		_, err = submit(t.Context(), other, archive)
		wantCode(t, err, executor.Conflict, "idempotency_key")
		if conflict, _ := errors.AsType[*executor.Error](err); conflict.ExecutionID != first.ID {
			t.Errorf("the conflict names the execution %q, want %q", conflict.ExecutionID, first.ID)
		}
		_, err = submit(t.Context(), again, tarOf(t, "main.py", "exit 1"))
		wantCode(t, err, executor.Conflict, "idempotency_key")
		_, err = r.Submit(t.Context(), keyed, executor.Input{Workspace: once(archive), Stdin: once(nil)})
		wantCode(t, err, executor.Conflict, "idempotency_key")
		if x, err := submit(as("other"), keyed, archive); err != nil || x.ID == first.ID {
			t.Errorf("another owner got %s, %v", x.ID, err)
		}
		synctest.Wait()
		r.wantIdle()
		r.wantBlobs(0)
	})
}

func TestConcurrentSubmitsOfOneKeyMakeOneExecution(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		var wg sync.WaitGroup
		ids := make([]string, 10)
		for i := range ids {
			wg.Go(func() {
				spec := executor.Spec{IdempotencyKey: "k", Durable: i%2 == 0}
				x, err := r.Submit(t.Context(), spec, executor.Input{Workspace: once(tarOf(t, "main.py", "sleep 1s"))})
				if err != nil {
					t.Error(err)
				}
				ids[i] = x.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("ids %v", ids)
			}
		}
		if n := len(must(r.List(t.Context(), executor.Filter{}))); n != 1 {
			t.Errorf("%d executions", n)
		}
		r.result(ids[0])
		r.wantIdle()
		r.wantBlobs(0)
		if n := len(r.fake.Runs()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestRequirementsAreFoundInTheirOrder(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	script := "# /// script\n# requires-python = '>=3.11,<3.13'\n# dependencies = ['a', 'b>1']\n# ///\n"
	bare := "# /// script\n# requires-python = '==3.13.*'\n# ///\n"
	for _, test := range []struct {
		name         string
		spec         executor.Spec
		files        []string
		requirements string
		version      string
		status       executor.Status
	}{
		{name: "code's own block", spec: executor.Spec{Code: script}, requirements: "a b>1", version: "3.12"},
		{name: "the request wins over code", spec: executor.Spec{Code: script, Requirements: "c"}, requirements: "c"},
		{name: "nobody looks where detect is false", spec: executor.Spec{Code: script, Detect: &no}},
		{name: "the request's version wins", spec: executor.Spec{Code: script, PythonVersion: "3.13"}, requirements: "a b>1", version: "3.13"},
		{name: "an image has a version of its own", spec: executor.Spec{Code: script, Image: "python:3.11"}, requirements: "a b>1"},
		{name: "the version of code's own block wins over that of the files", spec: executor.Spec{Code: bare, Detect: &yes}, files: []string{"pyproject.toml", "[project]\ndependencies = ['a']\nrequires-python = '<3.13'\n"}, requirements: "a", version: "3.13"},
		{name: "nobody looks into a tar unasked", files: []string{"main.py", script, "requirements.txt", "r"}},
		{name: "the entrypoint's block wins over requirements.txt", spec: executor.Spec{Detect: &yes}, files: []string{"requirements.txt", "r", "main.py", script}, requirements: "a b>1", version: "3.12"},
		{name: "the named entrypoint's block", spec: executor.Spec{Detect: &yes, Entrypoint: "app.py"}, files: []string{"main.py", bare, "app.py", script}, requirements: "a b>1", version: "3.12"},
		{name: "requirements.txt", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", "x", "requirements.txt", "r"}, requirements: "r"},
		{name: "pyproject.toml", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", "x", "pyproject.toml", "[project]\ndependencies = ['a']\nrequires-python = '<3.13'\n"}, requirements: "a", version: "3.12"},
		{name: "requirements.txt beside a block that does not speak of them", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", bare, "requirements.txt", "r"}, requirements: "r", version: "3.13"},
		{name: "requirements.txt for a command", spec: executor.Spec{Detect: &yes, Command: []string{"ls"}}, files: []string{"main.py", script, "requirements.txt", "r"}, requirements: "r"},
		{name: "a block that is wrong", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", "# /// script\n# x = = 1\n# ///\n"}, status: executor.StatusFailed},
		{name: "a requirements.txt that is too large", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", "x", "requirements.txt", strings.Repeat("r\n", maxRequirements/2+1)}, status: executor.StatusFailed},
		{name: "a requirements.txt that is no text", spec: executor.Spec{Detect: &yes}, files: []string{"main.py", "x", "requirements.txt", "r\x00"}, status: executor.StatusFailed},
		{name: "durable too", spec: executor.Spec{Detect: &yes, Durable: true}, files: []string{"main.py", script}, requirements: "a b>1", version: "3.12"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, replayable := range []bool{false, true} {
				inBubble(t, func(t *testing.T) {
					caps := fake.DefaultCapabilities()
					r := newRig(t, setup{backend: infoBackend{capabilities: &caps}})
					var in executor.Input
					if test.files != nil {
						archive := tarOf(t, test.files...)
						in.Workspace = once(archive)
						if replayable {
							in.Workspace = &executor.Source{Replayable: true, SizeBytes: int64(len(archive)), Open: func() (io.ReadCloser, error) { return once(archive).Open() }}
						}
					}
					x, err := r.Submit(t.Context(), test.spec, in)
					if err != nil {
						t.Fatal(err)
					}
					res := r.result(x.ID)
					if test.status != "" {
						if res.Status != test.status || res.Failure.Code != executor.Invalid || res.Failure.Phase != executor.PhasePrepare || res.Failure.Field != fieldTar {
							t.Errorf("result %+v, %+v", res, res.Failure)
						}
						return
					}
					x = must(r.Get(t.Context(), x.ID))
					if got := strings.Join(x.Started.Requirements, " "); got != test.requirements || x.Started.PythonVersion != test.version {
						t.Errorf("requirements %q, version %q", got, x.Started.PythonVersion)
					}
					r.wantIdle()
					r.wantBlobs(0)
				})
			}
		})
	}
}

func TestAScriptRunsOnTheBackendForScripts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.Scripts = true
		scripts := scriptFake{fake.New(fake.Options{Capabilities: &caps})}
		r := newRig(t, setup{options: Options{DefaultBackend: "other", Backends: map[string]executor.Backend{
			"other": fake.New(fake.Options{}), "scripts": scripts,
		}}})
		x, err := r.Submit(as("a", executor.ScopeScripts), executor.Spec{Script: "/srv/x.sh"}, executor.Input{})
		if err != nil || x.Backend != "scripts" {
			t.Errorf("it runs on %q: %v", x.Backend, err)
		}
	})
}

// refusedFake notes the requests that are refused before they reach it.
type refusedFake struct {
	scriptFake
	noted *[]executor.RefusedScript
}

func (f refusedFake) Scripts(ctx context.Context) ([]executor.Script, error) {
	if r, ok := executor.RefusedScriptFrom(ctx); ok {
		*f.noted = append(*f.noted, r)
	}
	return nil, nil
}

func TestAScriptThatTheEngineRefusesIsToldToItsBackend(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.Scripts = true
		var noted []executor.RefusedScript
		r := newRig(t, setup{backend: refusedFake{scriptFake{fake.New(fake.Options{Capabilities: &caps})}, &noted}})
		long := strings.Repeat("x", 1<<20)
		asked := func(args []string) executor.Spec {
			return executor.Spec{Script: "/srv/x.sh", Args: args, Limits: executor.Limits{Timeout: -1}}
		}
		for _, args := range [][]string{{"a\x00"}, {"b", long}} {
			_, err := r.Submit(as("a", executor.ScopeScripts), asked(args), executor.Input{})
			if executor.CodeOf(err) != executor.Invalid {
				t.Errorf("%v, want invalid", err)
			}
		}
		_, err := r.Submit(as("a", executor.ScopeExec), executor.Spec{Script: "/srv/x.sh"}, executor.Input{})
		wantCode(t, err, executor.Denied, "script")
		want := []executor.RefusedScript{
			{Tool: "run_script", Path: "/srv/x.sh", Args: []string{"a\x00"}, Code: executor.Invalid},
			{Tool: "run_script", Path: "/srv/x.sh", Args: []string{"b"}, Code: executor.Invalid},
		}
		if !reflect.DeepEqual(noted, want) {
			t.Errorf("the backend was told %.300v, want %v", noted, want)
		}
	})
}

func TestAProgramWhoseFilesAskForTooMuchHoldsNoPlace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		look := true
		content := tarOf(t, "main.py", "# /// script\n# requires-python = '<3'\n# ///")
		opened := 0
		for _, files := range []*executor.Source{again(content, &opened), once(content)} {
			_, err := r.Submit(t.Context(), executor.Spec{Detect: &look}, executor.Input{Workspace: files})
			wantCode(t, err, executor.Invalid, "python_version")
			r.wantIdle()
			r.wantBlobs(0)
		}
	})
}
