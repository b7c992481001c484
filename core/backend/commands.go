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
// first line of a Failure has the command, where \n begins a line of it.
var needsRoot = sync.OnceValue(func() *regexp.Regexp {
	const (
		says = `permission denied|operation not permitted|read-only file system|are you root|must be (?:run as )?root|superuser|could not open lock`
		// makes is a complaint about a path in a folder of the system that a box does not have.
		makes    = `\n[^\n]*\b(?:create|touch|mkdir|cd to|open the file)\b[^\n]*[ '"‘]/(?:home|media|mnt|opt|srv)\b`
		packages = `apt|apt-get|aptitude|dpkg|apk|yum|dnf|microdnf|zypper|pacman`
		users    = `useradd|userdel|usermod|adduser|deluser|addgroup|delgroup|groupadd|groupdel|groupmod|chpasswd|newusers|visudo`
		system   = `sudo|doas|chown|chroot|crontab|ldconfig|locale-gen|mount|umount|setcap|start-stop-daemon|swapoff|swapon|systemctl|sysctl|` +
			`update-(?:alternatives|ca-certificates|grub|initramfs|locale|rc\.d)|depmod|insmod|modprobe|rmmod|iptables|ip6tables|nft|ufw`
		// words are programs whose names are also words of other commands: they must begin a command.
		words = `passwd|rpm|service|snap|su`
	)
	return regexp.MustCompile(`(?i)` + says + `|` + makes + `|\A[^\n]*(?:` +
		`(?:\b|\\[nt])(?:` + packages + `|` + users + `|` + system + `)\b|` +
		`(?:["'(;&|]|\\[nt])\s*(?:(?:/usr)?/s?bin/)?(?:` + words + `)(?:[\s"'();&|]|\\[nt]))`)
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
