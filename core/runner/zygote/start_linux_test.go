package zygote

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// waiting starts an interpreter for one program, and returns its process, too.
func waiting(ctx context.Context, t *testing.T, text string) (*Slot, Process, error) {
	t.Helper()
	cfg := usual(t.TempDir())
	must(t, os.WriteFile(filepath.Join(cfg.Dir, "main.py"), []byte(text), 0o600))
	var p Process
	cfg.Launch = func(c Command) (_ Process, err error) {
		p, err = launch(c)
		return p, err
	}
	s, err := Start(ctx, cfg)
	return s, p, err
}

func TestAnInterpreterThatStartedForOneProgramRunsIt(t *testing.T) {
	t.Parallel()
	s, p, err := waiting(soon(t), t, "import os, sys; print(os.getpid(), sys.argv[1:], sorted(os.listdir('/proc/self/fd')))")
	must(t, err)
	if s.PID() != p.(launched).Pid {
		t.Errorf("process %d waits, %d was started", s.PID(), p.(launched).Pid)
	}
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	fds := [3]int{int(null.Fd()), int(write.Fd()), int(write.Fd())}
	must(t, s.Run(soon(t), Request{Argv: append(s.zygote.cfg.argv(), "a"), Env: s.zygote.cfg.Env, Files: fds}))
	must(t, write.Close())
	out, err := io.ReadAll(read)
	must(t, err)
	must(t, p.Wait())
	if _, rest, _ := strings.Cut(string(out), " "); rest != "['a'] ['0', '1', '2', '3']\n" {
		t.Errorf("%q", out)
	}
}

func TestAnInterpreterThatWaitsEndsWithItsSlot(t *testing.T) {
	t.Parallel()
	s, p, err := waiting(soon(t), t, "print(1)")
	must(t, err)
	s.Close()
	must(t, p.Wait())
	if err := s.Run(soon(t), Request{Argv: s.zygote.cfg.argv(), Env: s.zygote.cfg.Env}); err == nil {
		t.Error("a slot that is closed runs a program")
	}
}

func TestAStartThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	_, p, err := waiting(ctx, t, "print(1)")
	if err == nil || p == nil {
		t.Fatalf("%v, %v", p, err)
	}
	if err := p.Wait(); err == nil {
		t.Error("nobody has waited for the process")
	}
}
