//go:build !linux

package agent

import (
	"fmt"
	"os"
)

// Main says that runners exist on Linux only.
func Main(args []string) int { return MainWith(args, Clock) }

// MainWith is Main.
func MainWith([]string, Alarm) int {
	_, _ = fmt.Fprintln(os.Stderr, "python-executor runner: Linux only")
	return 1
}
