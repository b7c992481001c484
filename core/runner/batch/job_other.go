//go:build !linux

package batch

import "errors"

func jobMain(_, _, _ string) int {
	say(errors.New("Linux only"))
	return ExitNotRun
}

func prepareMain(input, output, feed string) int { return jobMain(input, output, feed) }

func feedMain(input, output, feed string) int { return jobMain(input, output, feed) }
