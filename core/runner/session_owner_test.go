//go:build linux

package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// The same with a real program, which may only do what programs may.
func TestAProgramThatSwapsNamesForLinksChangesNoOwner(t *testing.T) {
	needtest.NeedRoot(t)
	for _, tmpfs := range []bool{true, false} {
		cfg := testConfig(t)
		cfg.Tmpfs, cfg.Box = cfg.Tmpfs && tmpfs, cfg.Box && tmpfs
		host, check := hostFile(t, workRoot(t), func(name string) error { return os.WriteFile(name, nil, 0o644) }) //nolint:gosec // a program may look at it
		r := openSessionWith(t, cfg, pythonSession())
		r.wants(t, `
import os, threading
host = `+pythonText(host)+`
def swap(name, fifo):
    for how in (os.symlink, os.link):
        try:
            how(host, "swap" + fifo)
            os.rename(name, "away" + fifo)
            os.rename("swap" + fifo, name)
        except OSError:
            pass
        for left in ("swap" + fifo, "away" + fifo):
            try: os.rmdir(left) if os.path.isdir(left) else os.unlink(left)
            except OSError: pass
def race():
    while True:
        swap("up", "-u")
        for name in os.listdir(".tmp") if os.path.isdir(".tmp") else []:
            if name.startswith(".stdin"): swap(".tmp/" + name, "-f")
threading.Thread(target=race, daemon=True).start()
`, "", "")
		good := 0
		for range 60 {
			if _, err := r.WriteFile(t.Context(), executor.File{Path: "up/load", SizeBytes: -1}, strings.NewReader("data")); err == nil {
				good++
			} else if code := executor.CodeOf(err); code == executor.Internal || code == executor.Unavailable {
				t.Errorf("an upload: %v", err)
			}
			check()
			start := cellOf("1")
			if _, err := r.Run(t.Context(), start, RunInput{Stdin: strings.NewReader("x")}, newRecord()); err != nil {
				t.Fatal(errors.Join(err, errors.New(r.condition(t))))
			}
			check()
		}
		t.Logf("tmpfs %v: %d of 60 uploads got through", cfg.Tmpfs, good)
	}
}

func pythonText(s string) string { return "'" + s + "'" }

// hostFile makes a file of root's outside of every work folder, and returns its name and a check of its owner.
func hostFile(t *testing.T, dir string, makeIt func(name string) error) (name string, check func()) {
	t.Helper()
	name = filepath.Join(dir, "host-file")
	must(t, makeIt(name))
	var before unix.Stat_t
	must(t, unix.Stat(name, &before))
	return name, func() {
		t.Helper()
		var now unix.Stat_t
		must(t, unix.Stat(name, &now))
		if now.Uid != before.Uid || now.Gid != before.Gid || now.Mode != before.Mode {
			t.Fatalf("the host's file belongs to %d:%d with mode %o, before to %d:%d with %o", now.Uid, now.Gid, now.Mode, before.Uid, before.Gid, before.Mode)
		}
	}
}
