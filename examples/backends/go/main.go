// Command local-backend is an example of a backend plugin in Go: it runs programs as plain processes of this machine.
//
// The program is two programs. A host starts it as the plugin. The plugin starts it again for each Execution, with the
// argument "runner": the runner of python-executor, which starts one program, follows it, and ends all that it leaves.
package main

import (
	"os"

	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/agent"
)

const version = "1.0.0"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(agent.Main(os.Args[2:]))
	}
	plugin.ServeBackend("local-go", version, newBackend)
}
