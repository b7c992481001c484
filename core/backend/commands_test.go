package backend

import (
	"slices"
	"strings"
	"testing"
)

func TestCommandsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxCommandBytes)
	for _, c := range []struct {
		name string
		list []string
		want string
	}{
		{"none", nil, ""},
		{"the largest number", slices.Repeat([]string{"x"}, MaxCommands), ""},
		{"one too many", slices.Repeat([]string{"x"}, MaxCommands+1), "pre_commands: must be at most 256 commands of 65536 bytes together (got 257 of 257)"},
		{"the longest", []string{long}, ""},
		{"one byte too long together", []string{long, "x"}, "pre_commands: must be at most 256 commands of 65536 bytes together (got 2 of 65537)"},
		{"a NUL character", []string{"a", "b\x00"}, "pre_commands[1]: must not contain a NUL character"},
	} {
		p, got := &Problems{}, ""
		CheckCommands(p, c.list)
		if err := p.Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
