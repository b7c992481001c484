//go:build linux

package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// launchAs starts a fork server as the user of cfg.
func launchAs(cfg Config) func(zygote.Command) (zygote.Process, error) {
	return func(c zygote.Command) (zygote.Process, error) {
		attr := &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files, Sys: &syscall.SysProcAttr{Setsid: true}}
		if cfg.UID != 0 {
			attr.Sys.Credential = &syscall.Credential{Uid: uint32(cfg.UID), Gid: uint32(cfg.GID)} //nolint:gosec // positive
		}
		p, err := os.StartProcess(c.Path, c.Argv, attr)
		return process{p}, err
	}
}

type process struct{ *os.Process }

func (p process) Wait() error {
	_, err := p.Process.Wait()
	return err
}

// forkWay runs scripts as forks of fork servers, one after another. All scripts with the same entrypoint are forks of one server. The
// log has those that were refused.
func forkWay(t *testing.T, cfg Config) fidelityWay {
	work := filepath.Join(cfg.WorkRoot, "f04c5e4e")
	forked, refused := 0, []string{}
	var z *zygote.Zygote
	entry := ""
	t.Cleanup(func() {
		if z != nil {
			must(t, z.Close())
		}
		t.Logf("%d scripts were forked, %d refused:\n%s", forked, len(refused), strings.Join(refused, "\n"))
	})
	return fidelityWay{"fork", func(t *testing.T, python string, s *fidelityScript) outcome {
		t.Helper()
		start := s.start(python)
		folder := &sandbox.Folder{Path: work, Temp: work + "t"}
		env, err := sandbox.Environment(start, folder)
		must(t, err)
		if name := argumentOf(s.entry); z == nil || name != entry {
			if z != nil {
				must(t, z.Close())
			}
			entry = name
			usual, err := sandbox.Environment(Start{Path: start.Path}, folder)
			must(t, err)
			removeFolders(t, work)
			makeFolders(t, cfg, work)
			z, err = zygote.New(awaittest.Context(t), zygote.Config{Interpreter: python, Entrypoint: name, Dir: work, Env: usual, Launch: launchAs(cfg)})
			must(t, err)
		}
		slot, err := z.Next(awaittest.Context(t))
		must(t, err)
		got, why := runSlot(t, cfg, work, s, slot, zygote.Request{Argv: slices.Concat(start.Interpreter, []string{entry}, s.args), Env: env}, func() syscall.WaitStatus {
			exit, err := slot.Wait(awaittest.Context(t))
			must(t, err)
			return exit.Status
		})
		if got.refused {
			refused = append(refused, s.name+": "+why)
		} else {
			forked++
		}
		return got
	}}
}

// runSlot makes slot the program of a script. why says why a slot refuses it.
func runSlot(t *testing.T, cfg Config, work string, s *fidelityScript, slot *zygote.Slot, r zygote.Request, wait func() syscall.WaitStatus) (got outcome, why string) {
	t.Helper()
	removeFolders(t, work)
	s.unpack(t, cfg, work)
	defer removeFolders(t, work)
	pipes, err := sandbox.MakePipes(cfg, s.stdin != nil)
	must(t, err)
	defer pipes.Close()
	r.Files = [3]int(pipes.Theirs)
	err = slot.Run(awaittest.Context(t), r)
	if refused, ok := errors.AsType[*zygote.RefusedError](err); ok {
		return outcome{how: executor.StartExec, refused: true}, refused.Why
	}
	must(t, err)
	pipes.CloseTheirs()
	got = outcome{files: map[string]string{}, how: executor.StartFork}
	got.stdout, got.stderr = exchange(pipes, s.stdin)
	got.end = describe(resultOf(wait()))
	got.addFolder(t, work)
	return got.without(cfg, work, work+"t"), ""
}

// addFolder adds all regular files below a folder.
func (o *outcome) addFolder(t *testing.T, work string) {
	t.Helper()
	must(t, filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // a test's own
		st, statErr := d.Info()
		if err = errors.Join(err, statErr); err == nil {
			o.add(strings.TrimPrefix(path, work+"/"), st.Mode(), string(data))
		}
		return err
	}))
}

func removeFolders(t *testing.T, work string) {
	t.Helper()
	must(t, os.RemoveAll(work))
	must(t, os.RemoveAll(work+"t"))
}

func makeFolders(t *testing.T, cfg Config, work string) {
	t.Helper()
	for _, d := range []string{work, work + "t"} {
		must(t, os.Mkdir(d, 0o700))
		if cfg.UID != 0 {
			must(t, os.Chown(d, cfg.UID, cfg.GID))
		}
	}
}
