package cmd

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestWhatLeavesAConsole(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{ // -1: it does not leave
		"python: exit()": 0, "python: quit": 0, "python:  exit(3) ": 3, "python: quit();": 0, "python: exit(x)": -1, "python: exits()": -1, "python: exit(300)": -1, "python: x = exit": -1,
		"shell: exit": 0, "shell: exit 4": 4, "shell: logout": 0, "shell: exit x": -1, "shell: echo exit": -1, "javascript: .exit": 0, "javascript: quit()": 0,
	} {
		language, text, _ := strings.Cut(line, ":")
		status, leaves := leave(executor.Language(language), text)
		if leaves != (want >= 0) || leaves && status != want {
			t.Errorf("%s: %d, %t", line, status, leaves)
		}
	}
	for line, want := range map[string]bool{"  a": true, "\ta": true, ")": true, "else:": true, "elif x:": true, "except(E):": true, "finally:": true, "elsewhere = 1": false, "print(1)": false, "@d": false, "(": false, ":": false, "except* E:": true, "else": true} {
		if continues(line) != want {
			t.Errorf("%q continues a block: %t", line, !want)
		}
	}
}

// TestWhatIsPastedKeepsItsEmptyLines where its block goes on behind them, and an empty line that is typed ends its block.
func TestWhatIsPastedKeepsItsEmptyLines(t *testing.T) {
	t.Parallel()
	for behind, within := range map[string]bool{"  x": true, "||  x": true, "else:": true, "x": false, "||x": false, "|": false} {
		for _, pasted := range []bool{true, false} {
			y := &scripted{lines: strings.Split(behind, "|"), pasted: pasted}
			c := &console{lines: y}
			got, err := c.within(t.Context(), "", "... ")
			if err != nil || got != (within && pasted) || len(c.ahead)+len(y.lines) != strings.Count(behind, "|")+1 {
				t.Errorf("pasted %t, %q: within a block %t, %v, %d lines read and %d to come", pasted, behind, got, err, len(c.ahead), len(y.lines))
			}
		}
	}
}
