package backend

import (
	"fmt"
	"strings"
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
