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
	for line, want := range map[string]bool{"  a": true, "\ta": true, ")": true, "else:": true, "elif x:": true, "except(E):": true, "finally:": true, "elsewhere = 1": false, "print(1)": false, "@d": false} {
		if continues(line) != want {
			t.Errorf("%q continues a block: %t", line, !want)
		}
	}
}

// TestWhatIsPastedKeepsItsEmptyLines: the block goes on behind the empty line.
func TestWhatIsPastedKeepsItsEmptyLines(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	for _, pasted := range []bool{true, false} {
		var out, errs strings.Builder
		c, y, _ := consoleOn(t, bundle, id, executor.LanguagePython, &out, &errs, "print '''", "", "  '''", "print end")
		y.pasted = pasted
		err := c.loop(t.Context())
		if first := len(y.prompts) > 2 && y.prompts[1] == "... " && y.prompts[2] == "... "; err != nil || !first || !strings.HasSuffix(out.String(), "end\n") {
			t.Errorf("pasted %t: %q, %q, %v, prompts %q", pasted, &out, &errs, err, y.prompts)
		}
	}
}
