//go:build !linux

package batch

import "errors"

func jobMain(_, _ string) int {
	say(errors.New("Linux only"))
	return ExitNotRun
}

func prepareMain(input, output string) int { return jobMain(input, output) }
