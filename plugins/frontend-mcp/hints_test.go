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
		"ZeroDivisionError: division by zero":                                    "",
		"":                                                                       "",
	} {
		if got := a.hint("", "", stderr, executor.Result{Status: executor.StatusFailed}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", stderr, got, want)
		}
	}
	for name, test := range map[string]struct {
		code, stderr string
		failed, on   bool // on: there is a network
		want         string
	}{
		"a program that goes on without pip": {"", "sh: 1: pip: not found", false, false, "pip does not run in code: install […]"},
		"pip without a network":              {"", "pip: Temporary failure in name resolution", true, false, "pip does not run in code: install […]"},
		"a program that succeeds":            {"", "Network is unreachable", false, false, ""},
		"with a network":                     {"", "Network is unreachable", true, true, ""},
		"os.system":                          {`import os; os.system("pip install -q numpy 'pandas>=2'")`, "sh: 1: pip: not found", false, false, `install ["numpy","pandas>=2"]`},
		"a list of words":                    {`subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "numpy"], check=True)`, "/usr/bin/python3: No module named pip", true, false, `install ["numpy"]`},
		"a list in several lines":            {"subprocess.check_call([\n    'pip', 'install',\n    'numpy', 'pandas[excel]==2.1',\n])", "FileNotFoundError: [Errno 2] No such file or directory: 'pip'", true, true, `install ["numpy","pandas[excel]==2.1"]`},
		"pip's function":                     {`import pip; pip.main(["install", "numpy"])`, "ModuleNotFoundError: No module named 'pip'", true, true, `install ["numpy"]`},
		"a folder that is read-only":         {"cd /tmp && python3 -m pip install numpy | tail -1", "ERROR: Could not install packages due to an OSError", true, true, `install ["numpy"]`},
		"uv":                                 {"uv pip install numpy==2; python x.py", "sh: 1: uv: not found", true, true, `install ["numpy==2"]`},
		"a variable":                         {`subprocess.run(["pip", "install", name])`, "No such file or directory: 'pip'", true, true, "install […]"},
		"an index":                           {"pip install -i https://example.com/simple numpy", "externally-managed-environment", true, true, `install ["numpy"]`},
		"the module is what was missing":     {`os.system("pip install sklearn")`, "ModuleNotFoundError: No module named 'sklearn'", true, true, `Module sklearn is missing: install ["scikit-learn"]`},
		"a text about pip":                   {"print('pip installs')", "ValueError: x", true, true, ""},
		"pip that worked":                    {"pip install numpy", "", false, true, ""},
		"a package that pandas asks for":     {"df.to_parquet('x')", "ImportError: Unable to find a usable engine\n - `Import pyarrow` failed. pyarrow is required.\n - `Import fastparquet` failed.", true, true, `A package is missing: install ["pyarrow"]`},
		"a package that an error asks for":   {"fig.write_image('x')", "ValueError: Image export requires kaleido, which can be installed using pip:\n    $ pip install --upgrade kaleido\n", true, true, `install ["kaleido"]`},
		"npm":                                {"npm install lodash", "sh: 1: npm: not found", true, true, "npm packages cannot be installed"},
		"npm in JavaScript":                  {"require('child_process').execSync('npm i lodash')", "Error: Command failed", true, true, "npm packages cannot be installed"},
		"a module of npm":                    {"require('lodash')", "Error: Cannot find module 'lodash'\nRequire stack:", true, true, "Module lodash is missing: npm packages cannot be installed"},
		"by import":                          {"await import('lodash')", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'lodash' imported from /work", true, true, "Module lodash is missing: npm packages"},
		"a file of JavaScript":               {"require('./a.js')", "Error: Cannot find module './a.js'", true, true, "There is no file ./a.js: write it first"},
		"a declaration":                      {"import _ from 'lodash'", "SyntaxError: Cannot use import statement outside a module", true, true, "use require('name') or await import('name')"},
		"a system's package":                 {"sudo apt-get install -y jq", "E: Could not open lock file", true, true, "System packages cannot be installed"},
	} {
		with := a
		with.networkOff = !test.on
		r := executor.Result{Status: executor.StatusSucceeded}
		if test.failed {
			r.Status = executor.StatusFailed
		}
		if got := with.hint(test.code, "", test.stderr, r); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestPipWhoseFailureNobodySeesIsAnswered(t *testing.T) {
	t.Parallel()
	const sub = "import subprocess\n"
	for code, want := range map[string]bool{ // without a network
		sub + `subprocess.run(['pip','install','numpy'],capture_output=True)`:                                                   true,
		sub + `subprocess.run('pip install numpy', shell=True, text=True, capture_output=True)`:                                 true,
		sub + `print(subprocess.getoutput('pip install numpy'))`:                                                                true,
		sub + `subprocess.Popen(['pip', 'install', 'numpy'], stderr=subprocess.DEVNULL).wait()`:                                 true,
		"import subprocess, sys\nsubprocess.run(\n    [sys.executable, '-m', 'pip', 'install', '-q', 'numpy'],\n    stderr=-3)": true,
		sub + "import sys\nsubprocess.run(f'{sys.executable} -m pip install numpy', shell=True, stderr=-3)":                     true,
		sub + `subprocess.run(["sh", "-c", "pip install numpy"], capture_output=True)`:                                          true,
		sub + `subprocess.run(shlex.split("pip install numpy"), capture_output=True)`:                                           true,
		sub + "cmd = ['pip', 'install', 'numpy']\nsubprocess.run(cmd, capture_output=True)":                                     true,
		sub + "cmd = 'pip install numpy'\nsubprocess.run(cmd, shell=True, capture_output=True)":                                 true,
		sub + "try:\n    subprocess.check_call(['pip', 'install', 'numpy'], stderr=-3)\nexcept Exception as e:\n    pass":       true,
		`import os; os.system('pip install numpy >/dev/null 2>&1')`:                                                             true,
		`import os; os.system('pip install numpy 2>/dev/null')`:                                                                 true,
		`import os; os.popen('pip install numpy').read()`:                                                                       true,
		"def f():\n    import os\n    os.system('pip install numpy 2>&-')\nf()":                                                 true,
		"!pip install numpy 2>/dev/null":                                                                                        true,
		"out = !pip install numpy 2>&1":                                                                                         true,
		sub + "subprocess.check_call(['pip', 'install', 'numpy'], stderr=-3)":                                                   false, // pip has not failed
		sub + "subprocess.run(['pip', 'install', 'numpy'], check=True)":                                                         false,
		"try:\n    import numpy\nexcept ImportError:\n    import os\n    os.system('pip install numpy')":                        false, // it may not have run
		sub + "if missing:\n    subprocess.run(['pip', 'install', 'numpy'], capture_output=True)":                               false,
		sub + "subprocess.run(['pip', 'install', './numpy.whl'], capture_output=True)":                                          false, // needs no network
		sub + "subprocess.run(['pip', 'install', '--no-index', '-f', 'd', 'numpy'], capture_output=True)":                       false,
		sub + "# pip install numpy\nsubprocess.run(['ls'])":                                                                     false, // only a text
		"# pip install numpy\nprint(1)":                                                                                         false,
		`"""Usage: pip install numpy"""`:                                                                                        false,
		`print("try: pip install numpy")`:                                                                                       false,
		"import os\nprint('pip install numpy')":                                                                                 false,
		"import os\nos.system('ls') # pip install":                                                                              false,
	} {
		a := advice{install: func(packages string) string { return packages }, networkOff: true}
		succeeded := executor.Result{Status: executor.StatusSucceeded}
		if got := a.hint(code, "", "", succeeded); (got == `pip does not run in code: ["numpy"]`) != want || !want && got != "" {
			t.Errorf("%s: %q, want an answer: %t", code, got, want)
		}
		if got := a.hint(code, "Successfully installed numpy-2", "", succeeded); got != "" {
			t.Errorf("%s, which worked: %q", code, got)
		}
		a.networkOff = false
		if got := a.hint(code, "", "", succeeded); got != "" {
			t.Errorf("%s, with a network: %q", code, got)
		}
	}
	for _, test := range []struct {
		command, stdout string
		on, want        bool
	}{
		{"pip install numpy 2>&1 | tail -1", "hint: See PEP 668 for the detailed specification.", true, true},
		{"pip install numpy 2>&1 | tail -1", "sh: 1: pip: not found", true, true},
		{"pip install numpy 2>&1 | tail -1", "[notice] To update, run: pip install --upgrade pip", true, false},
		{"pip install -q numpy 2>&1 | tail -1", "", false, true},
		{"pip install numpy &", "", true, true},
		{"nohup pip install 'numpy' >log 2>&1 &", "", true, true},
		{"pip install numpy & wait", "", true, false},
		{"pip install numpy & wait", "", false, true},
		{"pip install numpy 2>/dev/null || true", "", false, true},
		{"cd /tmp; python3 -m pip install numpy >/dev/null 2>&1; ls", "", false, true},
		{"(pip install numpy) 2>/dev/null; true", "", false, true},
		{"python3 -m venv v && v/bin/pip install numpy 2>/dev/null; true", "", false, true},
		{"python3 -m venv v && v/bin/pip install numpy 2>/dev/null; true", "", true, false},
		{"pip install --target t numpy >/dev/null; true", "", true, false},
		{`"sh", "-c", "pip install numpy 2>/dev/null; true"`, "", false, true},
		{`python3 -c "import os; os.system('pip install numpy 2>/dev/null')"`, "", false, true},
		{"pip install numpy >/dev/null 2>&1", "", false, false}, // its exit code is that of the command
		{"pip install numpy 2>/dev/null && ls", "", false, false},
		{"set -e; pip install numpy; ls", "", false, false},
		{"python3 -c 'import numpy' || pip install numpy; ls", "", false, false},
		{"if pip install numpy; then ls; fi", "", false, false},
		{"echo pip install numpy; ls", "", false, false},
		{"grep 'pip install numpy' README; ls", "pip install numpy", false, false},
		{"ls # pip install numpy\nls", "", false, false},
	} {
		a := advice{install: func(packages string) string { return packages }, networkOff: !test.on, shell: true}
		got := a.hint(test.command, test.stdout, "", executor.Result{Status: executor.StatusSucceeded})
		if (got == `pip does not run in code: ["numpy"]`) != test.want || !test.want && got != "" {
			t.Errorf("%s (network %t): %q, want an answer: %t", test.command, test.on, got, test.want)
		}
	}
}

func TestTheEnginesHintsComeWithoutOtherWaysIn(t *testing.T) {
	t.Parallel()
	const lacks = "a (1).csv is not in the work folder: send it with the program"
	for hint, want := range map[string]string{
		lacks + " (files, a tar, --file; session cp)":                          lacks,
		"the limit of processes is reached (config.pids): use fewer":           "the limit of processes is reached (config.pids): use fewer",
		"the program wants arguments: give them (args, or after -- elsewhere)": "the program wants arguments: give them",
		"": "",
	} {
		if got := (advice{}).hint("", "", "", executor.Result{Status: executor.StatusFailed, Hint: hint}); got != want {
			t.Errorf("%s: %q", hint, got)
		}
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
	pip := map[string]any{"context_id": id, "code": "print-err error: externally-managed-environment\nexit 0\n!pip install numpy"}
	if a := c.call("run_code", pip); a.fields["success"] != false || a.fields["stderr"] != `pip does not run in code: call install_packages(context_id="`+id+`", packages=["numpy"]).` {
		t.Errorf("pip that fails without an error: %v", a)
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
	for code, want := range map[string]string{ // the engine's hints, without ways in that MCP has not
		"print-err RuntimeError: can't start new thread\nexit 1":                                "the limit of processes and threads is reached (config.pids): use fewer, or ask for more",
		"print-err FileNotFoundError: [Errno 2] No such file or directory: 'a (1).csv'\nexit 1": "a (1).csv is not in the work folder: send it with the program",
		"print-err x: error: the following arguments are required: name\nexit 1":                "the program wants arguments: give them",
		"print-err PermissionError: [Errno 13] Permission denied: '/etc/x'\nexit 1":             "/etc/x cannot be used: a program writes in its work folder and in /tmp",
		"raise ModuleNotFoundError: No module named 'yaml'":                                     `Module yaml is missing: call run_script_with_dependencies with dependencies=["pyyaml"].`,
	} {
		a := c.call("run_script_with_dependencies", map[string]any{"script_content": code})
		if a.fields["hint"] != want {
			t.Errorf("%s: %v, want %q", code, a, want)
		}
		if a := c.call("get_job_output", map[string]any{"job_id": a.fields["job_id"]}); a.fields["hint"] != want {
			t.Errorf("%s, read as a job: %v, want %q", code, a, want)
		}
	}
	if a := c.call("execute", map[string]any{"command": "x", "args": []string{}}); a.fields["hint"] != nil {
		t.Errorf("%v", a)
	}
}
