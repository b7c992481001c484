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
		"pre_commands[0] \"set -e\\napt-get update\" ended with exit code 100:\nE: partial is missing.":                         true,
		"pre_commands[0] \"ldconfig\" ended with exit code 127:\n/bin/sh: 1: ldconfig: not found":                               true,
		"pre_commands[0] \"/usr/sbin/update-ca-certificates\" ended with exit code 127:\nnot found":                             true,
		"pre_commands[0] \"su -c true\" ended with exit code 1:\nsu: Critical error - immediate abort":                          true,
		"pre_commands[0] \"true && /usr/bin/su\" ended with exit code 1":                                                        true,
		"pre_commands[0] \"true\\nservice x start\" ended with exit code 127":                                                   true,
		"pre_commands[0] \"systemctl start x\" ended with exit code 1:\nFailed to connect to bus: Host is down":                 true,
		"pre_commands[0] \"mkdir /opt/x\" ended with exit code 1:\nmkdir: cannot create directory ‘/opt/x’: No such file":       true,
		"pre_commands[0] \"echo a > /srv/x\" ended with exit code 2:\n/bin/sh: 1: cannot create /srv/x: Directory nonexistent":  true,
		"pre_commands[0] \"cd /opt\" ended with exit code 2:\n/bin/sh: 1: cd: can't cd to /opt":                                 true,
		"pre_commands[0] \"mkdir a/b\" ended with exit code 1:\nmkdir: cannot create directory ‘a/b’: No such file":             false,
		"pre_commands[0] \"cat /opt/x\" ended with exit code 1:\ncat: /opt/x: No such file or directory":                        false,
		"pre_commands[0] \"cat service su.txt /etc/passwd\" ended with exit code 1:\ncat: su.txt: No such file or directory":    false,
		"pre_commands[0] \"service.py; su.sh\" ended with exit code 127:\nservice.py: not found":                                false,
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
