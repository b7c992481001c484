//go:build !linux

package agent

import (
	"fmt"
	"os"
)

// Main says that runners exist on Linux only.
func Main([]string) int {
	_, _ = fmt.Fprintln(os.Stderr, "python-executor runner: Linux only")
	return 1
}
