package mcpfrontend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// switched is a Service whose backend changes.
type switched struct {
	executor.Service
	mu     sync.Mutex
	change func(*executor.Info)
	opened []executor.Session
	closed int
}

func (s *switched) Backends(ctx context.Context) ([]executor.Info, error) {
	list, err := s.Service.Backends(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.change != nil {
		s.change(&list[0])
	}
	return list, err
}

func (s *switched) to(change func(*executor.Info)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = change
}

func (s *switched) OpenSession(ctx context.Context, asked executor.Session) (executor.Session, error) {
	made, err := s.Service.OpenSession(ctx, asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, asked)
	return made, err
}

func (s *switched) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	closed, err := s.Service.CloseSession(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return closed, err
}

// listed returns the tools by name, and the versions that run_script_with_dependencies takes.
func listed(c *client) (byName map[string]map[string]any, versions string) {
	c.t.Helper()
	result, _ := c.request("tools/list", nil)
	byName = map[string]map[string]any{}
	for _, tool := range result["tools"].([]any) {
		m := tool.(map[string]any)
		byName[m["name"].(string)] = m
	}
	input, _ := byName["run_script_with_dependencies"]["inputSchema"].(map[string]any)
	properties, _ := input["properties"].(map[string]any)
	version, _ := properties["python_version"].(map[string]any)
	if strings.Contains(text(input["required"]), "python_version") {
		c.t.Error("python_version is required")
	}
	return byName, text(version["enum"])
}

func TestTheToolsAreThoseOfThePresentBackend(t *testing.T) {
	svc := &switched{Service: newService(t, fake.Options{})}
	c := serveTest(t, svc, nil)
	before, versions := listed(c)
	if versions != `["3.13","3.12"]` || before["run_code"] == nil || before["execute"] == nil {
		t.Fatal(versions, before)
	}
	svc.to(func(b *executor.Info) {
		b.Name = "other"
		b.Capabilities.Sessions, b.Capabilities.HostDirectories, b.Capabilities.PythonVersions = false, true, []string{"3.14"}
	})
	after, versions := listed(c)
	if versions != `["3.14"]` || after["run_code"] != nil || after["install_packages"] != nil || after["execute"] == nil {
		t.Errorf("%s %v", versions, after)
	}
	if is, was := after["run_script_in_dir"]["description"], before["run_script_in_dir"]["description"]; is == was || !strings.Contains(is.(string), "in the folder itself") {
		t.Errorf("the description is %s", is)
	}
	svc.to(func(b *executor.Info) {
		b.Name, b.Details = "other", map[string]string{hostDirectories: "read-only, except below /srv/out"}
		b.Capabilities.Sessions, b.Capabilities.HostDirectories, b.Capabilities.PythonVersions = false, true, []string{"3.14"}
	})
	if readOnly, _ := listed(c); !strings.Contains(readOnly["run_script_in_dir"]["description"].(string), "read-only, except below /srv/out") {
		t.Errorf("the description of a folder that scripts may not change is %s", readOnly["run_script_in_dir"]["description"])
	}
	svc.to(func(b *executor.Info) {
		b.Name = "other"
		b.Capabilities.Sessions, b.Capabilities.HostDirectories, b.Capabilities.PythonVersions = false, true, []string{"3.14"}
	})
	listed(c)
	// A backend that is down keeps its tools.
	svc.to(func(b *executor.Info) { *b = executor.Info{Name: "other", Message: "down"} })
	if _, versions := listed(c); versions != `["3.14"]` {
		t.Errorf("a backend that is down: %s", versions)
	}
	svc.to(nil)
	if again, versions := listed(c); versions != `["3.13","3.12"]` || again["run_code"] == nil {
		t.Errorf("%s %v", versions, again)
	}
}

// slowInfo delays the answer to a look with the key in its ctx.
type slowInfo struct {
	*switched
	asked, answer chan struct{}
}

type slowKey struct{}

func (s slowInfo) Backends(ctx context.Context) ([]executor.Info, error) {
	list, err := s.switched.Backends(ctx)
	if ctx.Value(slowKey{}) != nil {
		close(s.asked)
		<-s.answer
	}
	return list, err
}

func TestASlowLookDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	svc := slowInfo{&switched{Service: newService(t, fake.Options{})}, make(chan struct{}), make(chan struct{})}
	tools, err := newTools(t.Context(), testConfig(nil), svc, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tools.close(t.Context())
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		tools.look(context.WithValue(t.Context(), slowKey{}, true))
	}()
	<-svc.asked
	svc.to(func(b *executor.Info) { b.Name = "other" })
	tools.look(t.Context())
	close(svc.answer)
	<-looked
	if got := tools.backend().Name; got != "other" {
		t.Errorf("the backend is %s again", got)
	}
}

func TestTheToolsAreTheSameForACallerWithoutRights(t *testing.T) {
	svc := &switched{Service: newService(t, fake.Options{})}
	server := serveTest(t, svc, func(c *Config) {
		only := tokenOf("ann")
		only.Scopes = []executor.Scope{executor.ScopeScripts}
		c.HTTP.Tokens = []auth.Token{only}
	})
	server.token = "ann's"
	server.initialize()
	svc.to(func(b *executor.Info) { b.Capabilities.PythonVersions = []string{"3.14"} })
	if _, versions := listed(server); versions != `["3.14"]` {
		t.Errorf("the versions are %s", versions)
	}
}

// A call that waits for the backend's Info is slower by milliseconds. In this test it hangs.
func TestACallDoesNotLookAtTheBackend(t *testing.T) {
	t.Parallel()
	svc := &switched{Service: newService(t, fake.Options{})}
	c := serveTest(t, svc, nil)
	asked, reply := make(chan struct{}, 10), make(chan struct{})
	defer close(reply)
	svc.to(func(*executor.Info) { asked <- struct{}{}; <-reply })
	<-asked // by watch: the last Info is old
	called := make(chan answer, 1)
	go func() {
		called <- c.call("run_script_with_dependencies", map[string]any{"script_content": "print hi", "python_version": "3.12"})
	}()
	if a := awaittest.Recv(t, "the answer to a call that does not wait for the Info", called); a.isError {
		t.Errorf("%v", a)
	}
}

func TestClientsAreToldThatTheToolsHaveChanged(t *testing.T) {
	svc := &switched{Service: newService(t, fake.Options{})}
	p := serveStdioTest(t, svc, nil)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	result, _ := p.receive()["result"].(map[string]any)
	if can := text(result["capabilities"]); !strings.Contains(can, `"tools":{"listChanged":true}`) {
		t.Fatal(can)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	svc.to(func(b *executor.Info) { b.Capabilities.PythonVersions = []string{"3.14"} })
	// The client asks for nothing.
	if m := p.receive(); m["method"] != "notifications/tools/list_changed" {
		t.Errorf("%v", m)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n")
	if got := text(p.receive()["result"]); !strings.Contains(got, "3.14") {
		t.Error(got)
	}
}

func TestTheConfiguredPackagesArePreparedAtTheStart(t *testing.T) {
	svc := &switched{Service: newService(t, fake.Options{})}
	c := serveTest(t, svc, func(c *Config) { c.Contexts.Requirements = []string{"probe"} })
	prepared := func(want int) {
		t.Helper()
		awaittest.UntilNil(t, "the preparation", func() error {
			svc.mu.Lock()
			defer svc.mu.Unlock()
			if len(svc.opened) != want || svc.closed != want {
				return fmt.Errorf("opened %d, closed %d, want %d", len(svc.opened), svc.closed, want)
			}
			return nil
		})
	}
	prepared(1)
	svc.to(func(b *executor.Info) { b.Name = "other" }) // it can do the same
	listed(c)
	prepared(2)
	if s := svc.opened[0]; s.Spec.Requirements != "probe" || s.Language != executor.LanguagePython {
		t.Errorf("%+v", s)
	}
}
