package backend

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// MaxCommands and MaxCommandBytes bound the number of pre_commands and their total length.
const (
	MaxCommands     = 256
	MaxCommandBytes = 64 << 10
)

// CheckCommands adds to p the problems of pre_commands that a shell could not run.
func CheckCommands(p *Problems, list []string) {
	total := 0
	for n, c := range list {
		if strings.ContainsRune(c, 0) {
			p.Add(fmt.Sprintf("pre_commands[%d]", n), "must not contain a NUL character")
		}
		total += len(c)
	}
	if len(list) > MaxCommands || total > MaxCommandBytes {
		p.Add("pre_commands", "must be at most %d commands of %d bytes together (got %d of %d)", MaxCommands, MaxCommandBytes, len(list), total)
	}
}

// needsRoot matches what commands say that only root can run or that change the system, and the programs of distributions that do. The
// first line of a Failure has the command.
var needsRoot = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)permission denied|operation not permitted|read-only file system|are you root|must be (?:run as )?root|superuser|could not open lock|` +
		`\A[^\n]*\b(?:apt|apt-get|aptitude|dpkg|apk|yum|dnf|microdnf|zypper|pacman|sudo|useradd|adduser|groupadd|chown|mount)\b`)
})

// AsUser is for backends that run pre_commands as the program's user. To the Failure of a command that needs root it adds which backend
// has root for it. f may be nil.
func AsUser(f *executor.Failure) *executor.Failure {
	if f == nil || f.Field != "pre_commands" || !needsRoot().MatchString(f.Message) {
		return f
	}
	told := *f
	told.Message += "\nOn this backend pre_commands run as the program's user and cannot change the system. The docker backend runs them as root in a copy of the image."
	return &told
}
