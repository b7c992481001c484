//go:build unix

package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

func TestASignalThatNohupIgnoresStaysIgnored(t *testing.T) {
	all := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	if got := heeded(); signal.Ignored(syscall.SIGINT) || signal.Ignored(syscall.SIGHUP) {
		t.Log("the test itself runs with signals ignored")
	} else if !slices.Equal(got, all) {
		t.Error(got)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(heeded(), os.Signal(syscall.SIGHUP)) {
		t.Error("SIGHUP is heeded")
	}
}

// asSignalled makes TestOneStopMayComeAsTwoSignals the process that is stopped.
const asSignalled = "TEST_AS_SIGNALLED"

func TestOneStopMayComeAsTwoSignals(t *testing.T) {
	if os.Getenv(asSignalled) != "" {
		ctx, stop := withSignals(context.Background())
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("cleaning up")
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		os.Exit(7)
	}
	if signal.Ignored(syscall.SIGINT) || signal.Ignored(syscall.SIGHUP) {
		t.Skip("the test itself runs with signals ignored")
	}
	for _, c := range []struct {
		first  syscall.Signal
		second []syscall.Signal
		want   string
	}{
		{syscall.SIGTERM, []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTERM}, "exit status 7"},
		{syscall.SIGHUP, []syscall.Signal{syscall.SIGHUP}, "exit status 7"},
		{syscall.SIGINT, []syscall.Signal{syscall.SIGTERM}, "exit status 7"},
		{syscall.SIGINT, []syscall.Signal{syscall.SIGINT}, "signal: interrupt"},
		{syscall.SIGTERM, []syscall.Signal{syscall.SIGINT}, "signal: interrupt"},
	} {
		t.Run(fmt.Sprint(c.first, c.second), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestOneStopMayComeAsTwoSignals$") //nolint:gosec // this test
			cmd.Env = append(os.Environ(), asSignalled+"=1")
			cmd.Stderr = os.Stderr
			in, inErr := cmd.StdinPipe()
			out, outErr := cmd.StdoutPipe()
			if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewScanner(out)
			expect := func(want string) {
				for said.Scan() && said.Text() != want { //nolint:revive // looking for it
				}
				if said.Text() != want {
					t.Fatalf("it ended before it said %q", want)
				}
			}
			expect("ready")
			err := cmd.Process.Signal(c.first)
			expect("cleaning up")
			for _, s := range c.second {
				err = errors.Join(err, cmd.Process.Signal(s))
			}
			if err := errors.Join(err, in.Close()); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
