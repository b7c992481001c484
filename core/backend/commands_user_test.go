package backend

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestACommandThatNeedsRootSaysWhichBackendHasIt(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)":                                true,
		"E: Unable to acquire the dpkg frontend lock, are you root?":                                                            true,
		"touch: cannot touch '/usr/x': Read-only file system":                                                                   true,
		"pre_commands[0] \"apt update -y\" ended with exit code 100:\nE: List directory /var/lib/apt/lists/partial is missing.": true,
		"pre_commands[1] \"test -x adapter\" ended with exit code 1:\nno apt":                                                   false,
		"sh: 1: make: not found": false,
	} {
		f := AsUser(&executor.Failure{Field: "pre_commands", Message: message})
		if got := strings.Contains(f.Message, "The docker backend runs them as root"); got != want || !strings.HasPrefix(f.Message, message) {
			t.Errorf("%s becomes %s", message, f.Message)
		}
	}
	if f := (&executor.Failure{Field: "requirements_txt", Message: "permission denied"}); AsUser(f) != f || AsUser(nil) != nil {
		t.Error("another failure is changed")
	}
}
