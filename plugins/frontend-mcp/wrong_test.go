package mcpfrontend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/fake"
)

// wrongUses are calls as models make them, and the parts of the answer: the thing, the reason and the remedy. $dir is a folder that may be
// used, $py and $js are contexts.
var wrongUses = []struct{ tool, args, says string }{
	// Arguments that the tool has not.
	{"run_code", `{"code":"x","timeout":5}`, `"INVALID_PARAMS"|timeout: unknown argument: did you mean timeout_ms?|(the arguments are code, context_id, requirements, timeout_ms, cpu_seconds)`},
	{"run_code", `{"code":"x","timeout_seconds":5}`, `timeout_seconds: unknown argument: did you mean timeout_ms?`},
	{"run_code", `{"script_content":"x"}`, `script_content: unknown argument: did you mean code?`},
	{"run_code", `{"code":"x","packages":["a"]}`, `packages: unknown argument: did you mean requirements?`},
	{"run_code", `{"code":"x","session_id":"$py"}`, `session_id: unknown argument: did you mean context_id?`},
	{"run_code", `{"code":"x","language":"javascript"}`, `language: unknown argument: create_context has it`},
	{"run_script_with_dependencies", `{"script":"x"}`, `ValueError: script: unknown argument: did you mean script_content?|(the arguments are `},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_ms":5}`, `timeout_ms: unknown argument: did you mean timeout_seconds?`},
	{"run_script_with_dependencies", `{"script_content":"x","requirements":["a"]}`, `requirements: unknown argument: did you mean dependencies?`},
	{"run_script_in_dir", `{"dir":"$dir","script_path":"a.py"}`, `dir: unknown argument: did you mean directory?`},
	{"execute", `{"cmd":"x"}`, `Error: cmd: unknown argument: did you mean command?|(the arguments are command, args, stdin, timeout_ms, cpu_seconds)`},
	{"execute", `{"command":"x","timeout":5}`, `Error: timeout: unknown argument: did you mean timeout_ms?`},
	{"execute", `{"command":"x","input":"y"}`, `Error: input: unknown argument: did you mean stdin?`},
	{"write_context_file", `{"context_id":"$py","file":"a","text":"b"}`, `unknown argument: did you mean `},
	{"get_job_output", `{"execution_id":"exe_1"}`, `ValueError: execution_id: unknown argument: did you mean job_id?`},
	{"create_context", `{"name":"n","lang":"python"}`, `"INVALID_PARAMS"|lang: unknown argument|language`},
	{"list_contexts", `{"all":true}`, `all: unknown argument: the tool has none`},
	{"list_allowed", `{"all":true}`, `"E_BAD_ARG"|all: unknown argument: the tool has none`},
	// Arguments of another type, also inside of lists and objects.
	{"run_code", `{"code":7}`, `code: must be a string, not a number`},
	{"run_code", `{"code":"x","timeout_ms":"5000"}`, `timeout_ms: must be a whole number, not a string`},
	{"run_code", `{"code":"x","requirements":"numpy"}`, `requirements: must be a list, like [\"a\"], not a string`},
	{"run_code", `{"code":"x","requirements":["a",7]}`, `requirements[1]: must be a string, not a number`},
	{"create_context", `{"name":7}`, `"INVALID_PARAMS"|name: must be a string, not a number`},
	{"restart_context", `{"context_id":"$py","wipe":"yes"}`, `wipe: must be true or false, not a string`},
	{"execute", `{"command":["ls"]}`, `Error: command: must be a string, not an array`},
	{"execute", `{"command":"ls","args":"-l"}`, `Error: args: must be a list, like ["a"], not a string`},
	{"execute", `{"command":"ls","args":["-l",{}]}`, `Error: args[1]: must be a string, not an object`},
	{"run_script_with_dependencies", `{"script_content":7}`, `ValueError: script_content: must be a string, not a number`},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_seconds":1.5}`, `ValueError: timeout_seconds: must be a whole number, not 1.5`},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_seconds":1e30}`, `ValueError: timeout_seconds: must be a whole number, not 1e30`},
	{"run_script", `{"path":7}`, `"E_BAD_ARG"|path: must be a string, not a number`},
	{"run_script", `{"path":"/x","env":{"A":1}}`, `"E_BAD_ARG"|env.A: must be a string, not a number`},
	{"run_script", `{"path":"/x","args":[true]}`, `"E_BAD_ARG"|args: must be strings or numbers`},
	// Values that cannot be.
	{"run_code", `{"context_id":"$py"}`, `"INVALID_PARAMS"|code: must not be empty`},
	{"run_code", `{"code":"x","timeout_ms":-1}`, `timeout_ms: must not be negative (got -1)`},
	{"run_code", `{"code":"x","timeout_ms":1e12}`, `timeout_ms: must be at most 86400`},
	{"run_code", `{"code":"x","cpu_time":5}`, `cpu_time: unknown argument: did you mean cpu_seconds?`},
	{"execute", `{"command":"x","cpu_limit":5}`, `Error: cpu_limit: unknown argument: did you mean cpu_seconds?`},
	{"run_code", `{"code":"x\ud800"}`, `code: must not have half of a surrogate pair`},
	{"run_code", `{"code":"x","requirements":["-r requirements.txt"]}`, `requirements[0] must be one requirement, like requests or numpy>=2 (got \"-r requirements.txt\")`},
	{"run_code", `{"code":"x","requirements":["no-such-package"]}`, `"INVALID_PARAMS"|requirements: |no-such-package|Check the names and the versions.`},
	{"run_code", `{"code":"x","context_id":"ctx-1"}`, `"CONTEXT_NOT_FOUND"|Context ctx-1 not found: create one with create_context`},
	{"create_context", `{}`, `"INVALID_PARAMS"|name: must not be empty`},
	{"create_context", `{"name":"n","language":"ruby"}`, `"INVALID_LANGUAGE"|Unsupported language: \"ruby\". Supported: python, javascript`},
	{"create_context", `{"name":"n","python_version":"latest"}`, `python_version must be an exact minor version, one of 3.13, 3.12 (got \"latest\")`},
	{"create_context", `{"name":"n","language":"javascript","python_version":"3.12"}`, `python_version: must be empty for a JavaScript context`},
	{"create_context", `{"name":"n","language":"javascript","requirements":["lodash"]}`, `requirements: must be empty for a JavaScript context: npm packages cannot be installed|require('./name.js')`},
	{"run_code", `{"code":"1","context_id":"$js","requirements":["lodash"]}`, `requirements: must be empty in a JavaScript context: npm packages cannot be installed|package.json is not read|Node's own modules`},
	{"install_packages", `{"context_id":"$js","packages":["lodash"]}`, `packages: a JavaScript context takes none: npm packages cannot be installed`},
	{"install_packages", `{"context_id":"$py","packages":[]}`, `packages: must not be empty`},
	{"stop_context", `{}`, `"INVALID_PARAMS"|context_id: must not be empty`},
	{"stop_context", `{"context_id":"ctx-1"}`, `"CONTEXT_NOT_FOUND"|Context ctx-1 not found: create one with create_context`},
	{"write_context_file", `{"context_id":"$py","path":"../x","content":""}`, `path: must stay inside|(got \"../x\")`},
	{"write_context_file", `{"context_id":"$py","path":"x","content":"%%","encoding":"base64"}`, `content: must be base64`},
	{"write_context_file", `{"context_id":"$py","path":"x","content":"","encoding":"b64"}`, `encoding: must be one of text, base64 (got \"b64\")`},
	{"read_context_file", `{"context_id":"$py","path":"none.csv"}`, `path: there is no file \"none.csv\" in the context`},
	{"execute", `{"command":"  "}`, `Error: command: empty`},
	{"execute", `{"command":"no-such-program","args":[]}`, `Error: execute: spawn failed`},
	{"execute", `{"command":"x","timeout_ms":-5}`, `Error: timeout_ms: must not be negative (got -5)`},
	{"execute", `{"command":"fake","args":[],"timeout_ms":18446744075000}`, `Error: timeout_ms: must be at most 86400 s`},
	{"execute", `{"command":"fake","args":["x","$long"]}`, `Error: args[1]: must be at most 131071 bytes`},
	{"execute", `{"command":"$long"}`, `Error: command: must be at most 131071 bytes`},
	{"execute", `{"command":"fake","args":["x","\ud800"]}`, `Error: args: must not have half of a surrogate pair`},
	{"run_script", `{"path":"/x","timeout_ms":18446744075000}`, `"E_BAD_ARG","message":"timeout_ms: must be at most 86400 s`},
	{"run_script", `{"path":"/x","env":{"A":"\ud800"}}`, `"E_BAD_ARG","message":"env: must not have half of a surrogate pair`},
	{"run_script_with_dependencies", `{}`, `ValueError: provide exactly one of script_path and script_content`},
	{"run_script_with_dependencies", `{"script_path":"a","script_content":"b"}`, `ValueError: provide exactly one of script_path and script_content, not both`},
	{"run_script_with_dependencies", `{"script_content":"x","python_version":"3.12.1"}`, `ValueError: python_version must be an exact minor version, one of 3.13, 3.12 (got "3.12.1")`},
	{"run_script_with_dependencies", `{"script_content":"x","python_version":"3.99"}`, `ValueError: python_version: `},
	{"run_script_with_dependencies", `{"script_content":"x","dependencies":["--index-url x"]}`, `ValueError: dependencies[0] must be one requirement, like requests or numpy>=2`},
	{"run_script_with_dependencies", `{"script_content":"x","dependencies":["no-such-package"]}`, `ValueError: prepare: |no-such-package|Change dependencies.`},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_seconds":-1}`, `ValueError: timeout_seconds must not be negative (got -1)`},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_seconds":90000}`, `ValueError: timeout_seconds: must be at most 86400`},
	{"run_script_with_dependencies", `{"script_content":"x","timeout_seconds":18446744075}`, `ValueError: timeout_seconds: must be at most 86400`},
	{"run_script_with_dependencies", `{"script_content":"x\ud800"}`, `ValueError: script_content: must not have half of a surrogate pair`},
	{"run_script_with_dependencies", `{"script_content":"x\u0000"}`, `ValueError: script_content must not contain a NUL byte`},
	{"run_script_with_dependencies", `{"script_content":"x","args":["\u0000"]}`, `ValueError: args[0]: `},
	{"run_script_with_dependencies", `{"script_path":"none.py"}`, `ValueError: script_path must be an absolute path (got "none.py")`},
	{"run_script_with_dependencies", `{"script_path":"$dir/none.py"}`, `FileNotFoundError: script_path does not exist or is not a file`},
	{"run_script_with_dependencies", `{"script_path":"$dir/book.ipynb"}`, `script_path: must be a program, not a notebook: export it first (jupyter nbconvert`},
	{"run_script_with_dependencies", `{"script_path":"$dir/notes.txt"}`, `script_path: must be a program, not text (.txt): name the .py file`},
	{"run_script_in_dir", `{"directory":"$dir","script_path":"book.ipynb"}`, `script_path: must be a program, not a notebook: export it first`},
	{"run_script_in_dir_async", `{"directory":"$dir","script_path":"book.ipynb"}`, `script_path: must be a program, not a notebook`},
	{"run_script_in_dir", `{"directory":"$dir","script_path":"notes.txt"}`, `script_path: must be a program, not text (.txt): name the .py file`},
	{"run_script_in_dir", `{"script_path":"a.py"}`, `ValueError: directory must not be empty`},
	{"run_script_in_dir", `{"directory":"$dir/none","script_content":"x"}`, `FileNotFoundError: directory is not one of the folders of this server (mcp.directories)`},
	{"run_script_in_dir", `{"directory":"/etc","script_content":"x"}`, `FileNotFoundError: directory is not one of the folders`},
	{"run_script_in_dir", `{"directory":"$dir/out","script_content":"x"}`, `FileNotFoundError: directory is not one of the folders`},
	{"run_script_in_dir", `{"directory":"$dir","script_path":"out/passwd"}`, `FileNotFoundError: script_path`},
	{"benchmark_script", `{"script_path":"$dir/book.ipynb"}`, `script_path: must be a program, not a notebook`},
	{"benchmark_script", `{"script_content":"x","sample_interval":0.001}`, `ValueError: sample_interval must be between 0.01 and 3600 seconds (got 0.001)`},
	{"get_job_output", `{"job_id":"exe_1"}`, `ValueError: job "exe_1" not found: list_running_jobs shows the jobs`},
	{"get_job_output", `{"job_id":"exe_1","stdout_offset":-1}`, `ValueError: stdout_offset must not be negative (got -1)`},
	{"kill_job", `{"job_id":"../x"}`, `ValueError: job "../x" not found: list_running_jobs shows the jobs`},
}

func TestAWrongUseIsAnsweredWithTheThingTheReasonAndTheRemedy(t *testing.T) {
	dir := t.TempDir()
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Directories = []string{dir} })
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"book.ipynb", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	py, _ := c.call("create_context", map[string]any{"name": "p"}).fields["context_id"].(string)
	js, _ := c.call("create_context", map[string]any{"name": "j", "language": "javascript"}).fields["context_id"].(string)
	values := strings.NewReplacer("$dir", dir, "$py", py, "$js", js, "$long", strings.Repeat("x", 200_000))
	for _, wrong := range wrongUses {
		args := map[string]any{}
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(values.Replace(wrong.args)), &members); err != nil {
			t.Fatal(err)
		}
		for name, value := range members {
			args[name] = value
		}
		a := c.call(wrong.tool, args)
		for part := range strings.SplitSeq(wrong.says, "|") {
			if !a.isError || !strings.Contains(a.text, part) {
				t.Errorf("%s %.200s: %v lacks %q", wrong.tool, wrong.args, a, part)
			}
		}
	}
	_, messages, err := c.post(t.Context(), map[string]any{"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": map[string]any{"name": "run_cod"}}, nil)
	if err != nil || !strings.Contains(text(messages), "tool 'run_cod': did you mean run_code? the tools are benchmark_script, ") || !strings.Contains(text(messages), "write_context_file; 'run_cod' not found") {
		t.Errorf("no such tool: %v, %v", messages, err)
	}
	if a := c.call("execute", map[string]any{"command": "ls -l", "args": []string{}}); !strings.Contains(text(a.content), "leave args out to run a line of a shell") {
		t.Errorf("a line as a program: %v", a)
	}
}
