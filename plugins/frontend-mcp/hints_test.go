package mcpfrontend

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAFailureWithAUsualCauseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	a := advice{install: func(packages string) string { return "install " + packages }, networkOff: true, setting: "mcp.network.contexts"}
	for stderr, want := range map[string]string{
		"ModuleNotFoundError: No module named 'sklearn'":                         `Module sklearn is missing: install ["scikit-learn"]`,
		"ModuleNotFoundError: No module named 'sklearn.cluster'":                 `install ["scikit-learn"]`,
		"ModuleNotFoundError: No module named 'google.protobuf'":                 `install ["protobuf"]`,
		"No module named 'a'\nModuleNotFoundError: No module named 'some_thing'": `install ["some-thing"]`,
		"ImportError: Missing optional dependency 'openpyxl'.  Use pip":          `install ["openpyxl"]`,
		"/usr/bin/python3: No module named pip":                                  "pip does not run in code: install […]",
		"socket.gaierror: [Errno -3] Temporary failure in name resolution":       "network is off: no other host can be reached (setting mcp.network.contexts).",
		"curl: (6) Could not resolve host: example.com":                          "network is off: ",
		"Error: getaddrinfo EAI_AGAIN example.com":                               "network is off: ",
		"OSError: [Errno 101] Network is unreachable":                            "network is off: ",
		"BlockingIOError: [Errno 11] Resource temporarily unavailable":           "The limit of processes and threads is reached",
		"RuntimeError: can't start new thread":                                   "The limit of processes and threads is reached",
		"sh: 1: Cannot fork":                                                     "The limit of processes and threads is reached",
		"ZeroDivisionError: division by zero":                                    "",
		"":                                                                       "",
	} {
		if got := a.hint(stderr, true); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", stderr, got, want)
		}
	}
	if got := a.hint("sh: 1: pip: not found", false); got != "pip does not run in code: install […]" {
		t.Errorf("a program that goes on without pip: %q", got)
	}
	if got := a.hint("pip: Temporary failure in name resolution", true); got != "pip does not run in code: install […]" {
		t.Errorf("pip without a network: %q", got)
	}
	if got := a.hint("Network is unreachable", false); got != "" {
		t.Errorf("a program that succeeds: %q", got)
	}
	a.networkOff = false
	if got := a.hint("Network is unreachable", true); got != "" {
		t.Errorf("with a network: %q", got)
	}
}

func TestCodeThatCallsPipIsToldWhichToolInstalls(t *testing.T) {
	t.Parallel()
	a := advice{install: func(packages string) string { return "install " + packages }}
	const failed = "  File \"<cell>\", line 1\nSyntaxError: invalid syntax"
	for code, want := range map[string]string{
		"pip install numpy":                        `["numpy"]`,
		"!pip install -q 'pandas>=2' matplotlib":   `["pandas>=2","matplotlib"]`,
		"import x\n%pip install numpy":             `["numpy"]`,
		"  !python -m pip install -U numpy":        `["numpy"]`,
		"!uv pip install numpy && echo":            `["numpy"]`,
		"! pip3 install -r requirements.txt numpy": `[…]`,
		"print('pip install numpy'":                "",
		"pip = 1\ninstall(pip":                     "",
	} {
		got := a.pipInstead(code, failed)
		if want == "" && got != "" || want != "" && got != "pip does not run in code: install "+want || strings.Contains(got, "\n") {
			t.Errorf("%s: %q", code, got)
		}
		const refused = "  File \"<cell 1>\", line 1\nNotImplementedError: pip cannot install here: packages come from the requirements"
		if a.pipInstead(code, refused) != got {
			t.Errorf("%s: where a session refuses pip: %q", code, a.pipInstead(code, refused))
		}
		if got := a.pipInstead(code, ""); got != "" {
			t.Errorf("%s: code that has not failed: %q", code, got)
		}
	}
}

func TestHintsComeWithTheResult(t *testing.T) {
	can := fake.DefaultCapabilities()
	can.Sessions, can.NetworkOff = true, true
	can.Languages = []executor.Language{executor.LanguagePython, executor.LanguageShell}
	c := serveTest(t, newService(t, fake.Options{Capabilities: &can}), nil)
	id, _ := c.call("create_context", map[string]any{"name": "n"}).fields["context_id"].(string)
	const missing, offline = "raise ModuleNotFoundError: No module named 'yaml'", "raise Network is unreachable"
	run := map[string]any{"context_id": id, "code": missing}
	if a := c.call("run_code", run); a.fields["note"] != `Module yaml is missing: call install_packages(context_id="`+id+`", packages=["pyyaml"]).` {
		t.Errorf("%v", a)
	}
	if a := c.call("run_code", map[string]any{"context_id": id, "code": offline}); !strings.HasPrefix(a.fields["note"].(string), "network is off: ") {
		t.Errorf("%v", a)
	}
	if a := c.call("run_script_with_dependencies", map[string]any{"script_content": missing}); a.fields["hint"] != `Module yaml is missing: call run_script_with_dependencies with dependencies=["pyyaml"].` {
		t.Errorf("%v", a)
	}
	if a := c.call("run_script_with_dependencies", map[string]any{"script_content": "print-err Network is unreachable"}); a.fields["hint"] != nil {
		t.Errorf("a program that succeeds: %v", a)
	}
	if a := c.call("execute", map[string]any{"command": "x", "args": []string{}}); a.fields["hint"] != nil {
		t.Errorf("%v", a)
	}
}
