// Command python-executor-runner is the runner as a small static program of its own: what python-executor embeds, starts
// from a memfd on the host, and puts into containers.
package main

import (
	"os"

	"github.com/python-executor/python-executor/core/runner/batch"
	"github.com/python-executor/python-executor/core/sysmon"
)

func main() {
	sysmon.Calm()
	sysmon.ShortenSlices()
	os.Exit(batch.Main(os.Args[1:]))
}
