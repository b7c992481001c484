// Command python-executor runs Python, here or on a server. It is the CLI, the server, every bundled plugin and the
// runner in one binary.
package main

import (
	"os"
	"runtime"

	"github.com/python-executor/python-executor/cli/internal/cmd"
	"github.com/python-executor/python-executor/core/sysmon"
)

// version is set by the linker.
var version = "dev"

func main() {
	runtime.MemProfileRate = 0 // samples of allocations take a megabyte; a server with http.pprof_bind takes them
	sysmon.Calm()
	sysmon.ShortenSlices()
	os.Exit(cmd.Main(os.Args, bundled()))
}
