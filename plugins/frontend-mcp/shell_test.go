package mcpfrontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// A sandbox may end before its MCP session. Its files are lost then. If somebody has closed it, the next command gets a new one. If its
// backend has lost it, the next command may have run and says so, and the one after it gets a new one.
func TestACommandGetsANewSandboxInPlaceOfOneThatIsLost(t *testing.T) {
	can := fake.DefaultCapabilities()
	can.Sessions, can.Languages = true, []executor.Language{executor.LanguagePython, executor.LanguageShell}
	backend := fake.New(fake.Options{Capabilities: &can})
	svc := newService(t, fake.Options{}, func(o *engine.Options) { o.Backends = map[string]executor.Backend{"fake": backend} })
	c := serveTest(t, svc, nil)
	run := func(text string) answer {
		return c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", text}})
	}
	for name, lose := range map[string]func(id string) error{
		"closed":              func(id string) error { _, err := svc.CloseSession(t.Context(), id); return err },
		"lost by its backend": func(id string) error { return backend.CloseSession(t.Context(), id) },
	} {
		if a := run("write-file f kept"); a.isError {
			t.Fatalf("%s: %v", name, a)
		}
		sessions, err := svc.ListSessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sessions {
			if s.Status == executor.SessionActive {
				if err := lose(s.ID); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		a := run("exists f")
		if name == "lost by its backend" {
			if !a.isError || !strings.Contains(fmt.Sprint(a.content), "its session was lost") {
				t.Errorf("%s: %v", name, a)
			}
			a = run("exists f")
		}
		if a.isError || a.fields["stdout"] != "false\n" {
			t.Errorf("%s: %v", name, a)
		}
		if a := run("write-file f again\ncat f"); a.isError || a.fields["stdout"] != "again" {
			t.Errorf("%s: the command after that: %v", name, a)
		}
	}
}
