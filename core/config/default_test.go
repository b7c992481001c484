package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTheDefaultDataFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		uid         int
		state, home string
		want        string
	}{
		{"root", 0, "/state", "/root", "/var/lib/python-executor"},
		{"a folder for state", 1000, "/state", "/home/ann", "/state/python-executor"},
		{"no folder for state", 1000, "", "/home/ann", "/home/ann/.local/state/python-executor"},
		{"a relative folder for state", 1000, "state", "/home/ann", "/home/ann/.local/state/python-executor"},
		{"no home", 1000, "", "", filepath.Join(os.TempDir(), "python-executor")},
	} {
		home := func() (string, error) {
			if c.home == "" {
				return "", errors.New("no home")
			}
			return c.home, nil
		}
		if got := dataDir(c.uid, c.state, home); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
