package zygote

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
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
	s, p, err := waiting(awaittest.Context(t), t, "import os, sys; print(os.getpid(), sys.argv[1:], sorted(os.listdir('/proc/self/fd')))")
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
	must(t, s.Run(awaittest.Context(t), Request{Argv: append(s.zygote.cfg.argv(), "a"), Env: s.zygote.cfg.Env, Files: fds}))
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
	s, p, err := waiting(awaittest.Context(t), t, "print(1)")
	must(t, err)
	s.Close()
	must(t, p.Wait())
	if err := s.Run(awaittest.Context(t), Request{Argv: s.zygote.cfg.argv(), Env: s.zygote.cfg.Env}); err == nil {
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

func TestAnErrorTellsWhetherTheProgramMayHaveBegun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, s *Slot, cancel func())
		want  bool
	}{
		{"it begins too late", func(t *testing.T, s *Slot, cancel func()) {
			cancel()
			must(t, s.own.SetReadDeadline(time.Unix(1, 0))) // the end of ctx does the same, some time later
		}, true},
		{"the copy has died", func(t *testing.T, s *Slot, _ func()) {
			must(t, unix.Kill(s.PID(), unix.SIGKILL))
			_, err := s.Wait(awaittest.Context(t))
			must(t, err)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := start(t, usual(t.TempDir()))
			must(t, os.WriteFile(filepath.Join(z.cfg.Dir, "main.py"), []byte("print(1)"), 0o600))
			s, err := z.Next(awaittest.Context(t))
			must(t, err)
			t.Cleanup(s.Close)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			c.spoil(t, s, func() { cancel(errors.New("it is too late")) })
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			must(t, err)
			defer null.Close()
			out, theirs, err := os.Pipe()
			must(t, err)
			defer out.Close()
			r := Request{Argv: z.cfg.argv(), Env: z.cfg.Env, Files: [3]int{int(null.Fd()), int(theirs.Fd()), int(theirs.Fd())}}
			if err := s.Run(ctx, r); err == nil {
				t.Fatal("no error")
			}
			must(t, theirs.Close())
			_, err = io.ReadAll(out)
			must(t, err)
			must(t, z.Close())
			if got := s.Begun(); got != c.want {
				t.Errorf("begun: %v", got)
			}
		})
	}
}

// Only the copy itself may say what becomes of its program. After anything else the program may have begun.
func TestACopyIsBelievedOnlyIfItSpeaksForItself(t *testing.T) {
	t.Parallel()
	own := os.Getpid()
	for _, c := range []struct {
		message string
		copy    int // the process number of the copy; this process sends the message
		want    string
		refused bool
	}{
		{"started", own, "", false},
		{"exec\x00it is so", own, "it is so", true},
		{"clash\x00json", own, "json is in the folder", true},
		{"hello", own, "unknown message", false},
		{"started", own + 1, "speaks for the copy", false},
		{"exec\x00it is so", own + 1, "speaks for the copy", false},
		{"clash\x00json", own + 1, "speaks for the copy", false},
	} {
		ours, theirs, err := socketPair()
		must(t, err)
		_, err = theirs.WriteString(c.message)
		must(t, err)
		s := &Slot{zygote: &Zygote{}, own: ours, pid: c.copy}
		err = s.Run(t.Context(), Request{Argv: []string{"", ""}, Files: [3]int{0, 1, 2}})
		_, refused := errors.AsType[*RefusedError](err)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || refused != c.refused {
			t.Errorf("%q of %d: %v, want %q", c.message, c.copy-own, err, c.want)
		}
		if begun := s.Begun(); begun == c.refused {
			t.Errorf("%q of %d: begun: %t", c.message, c.copy-own, begun)
		}
		s.Close()
		must(t, theirs.Close())
	}
}
