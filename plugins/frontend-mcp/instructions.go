package mcpfrontend

import (
	"fmt"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// networkText says whether the programs of a toolset have a network.
func networkText(n executor.Network) string {
	if n == executor.NetworkOn {
		return "The network is on."
	}
	return "No network."
}

// instructions returns what holds for several tools. Clients give it to the model once, while the descriptions of tools are in each request.
func (t *tools) instructions() string {
	lines := []string{
		"Runs Python, JavaScript and shell in sandboxes.",
		"A program that fails is a normal result with its exit code (-n: killed by signal n) and its stderr; hint or note says what to do. A tool error says which argument to change.",
		fmt.Sprintf("Long output keeps its beginning and its end (%d bytes of each stream).", t.config.MaxResultBytes),
		"Files that a program makes in its work folder come as resource links; read them with resources/read.",
		"cpu_seconds bounds the CPU time of all processes of a program together; a program that uses more is stopped as by a timeout.",
		"Packages come from requirements, dependencies or install_packages: pip, npm and apt do not run in code.",
	}
	if t.config.has(ToolsetContexts) {
		lines = append(lines, "Contexts: variables, imports, packages and files of a context stay between calls until stop_context; a program that dies ends its context. "+
			"run_code without context_id is a Python program of its own, and nothing of it is kept. timeout_ms interrupts code; the default is the server's.")
	}
	if t.config.has(ToolsetPython) {
		lines = append(lines, "Scripts: give exactly one of script_path and script_content. timeout_seconds is 300 unless given. A job (the async tools) returns its job_id at once and runs until it ends, kill_job stops it, or the server's maximum time is over. "+
			"get_job_output reads the whole output of each call by its job_id or execution_id. "+
			"Errors: ValueError (arguments, no such job), FileNotFoundError (directory, script_path), OSError (the script could not be started). "+
			`Examples: run_script_in_dir {"directory": "/work/project", "script_path": "main.py"}; `+
			`run_script_with_dependencies {"script_content": "import requests; print(requests.__version__)", "dependencies": ["requests"]}; get_job_output {"job_id": "exe_…"}.`)
	}
	if t.config.has(ToolsetShell) {
		lines = append(lines, fmt.Sprintf("execute: without args, command is a line for sh -c; with args, it is executed directly. Of both streams together the first %d bytes are kept.", t.config.Shell.MaxOutputBytes))
	}
	return strings.Join(lines, "\n")
}
