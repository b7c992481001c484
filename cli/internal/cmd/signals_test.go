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

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestASignalThatNohupIgnoresStaysIgnored(t *testing.T) {
	heedInherited(t)
	if got := heeded(); !slices.Equal(got, []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}) {
		t.Error(got)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(heeded(), os.Signal(syscall.SIGHUP)) {
		t.Error("SIGHUP is heeded")
	}
}

// heedInherited has this process catch the signals that its own parent ignores (nohup, a background job of a shell), so that
// the processes that it starts begin with the system's behaviour.
func heedInherited(t *testing.T) {
	t.Helper()
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			c := make(chan os.Signal, 1)
			signal.Notify(c, s)
			t.Cleanup(func() { signal.Stop(c) })
		}
	}
}

// echoEnd stands among signals for the end of the time in which they belong to the one before.
const echoEnd = syscall.Signal(0)

func TestWhatCountsAsASecondRequest(t *testing.T) {
	t.Parallel()
	const term, interrupt, hangUp = syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP
	for _, c := range []struct {
		name         string
		signals      []syscall.Signal
		first, again syscall.Signal
	}{
		{"one signal", []syscall.Signal{term, echoEnd}, term, 0},
		{"timeout(1) sends it twice", []syscall.Signal{term, term, echoEnd}, term, 0},
		{"a service manager adds a SIGHUP", []syscall.Signal{term, hangUp, echoEnd, hangUp}, term, 0},
		{"a terminal is closed", []syscall.Signal{hangUp, hangUp, term, echoEnd, hangUp}, hangUp, 0},
		{"the same again", []syscall.Signal{term, echoEnd, term}, term, term},
		{"Ctrl-C twice", []syscall.Signal{interrupt, echoEnd, interrupt}, interrupt, interrupt},
		{"Ctrl-C, then SIGTERM", []syscall.Signal{interrupt, term}, interrupt, term},
		{"SIGTERM, then Ctrl-C", []syscall.Signal{term, interrupt}, term, interrupt},
		{"a closed terminal, then SIGTERM", []syscall.Signal{hangUp, echoEnd, term}, hangUp, term},
		{"a third one changes nothing", []syscall.Signal{term, echoEnd, interrupt, term}, term, interrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, requests := stop.New(t.Context())
			h := &signalHandler{requests: requests, taker: &signalTaker{}}
			for _, s := range c.signals {
				if s == echoEnd {
					h.listen()
				} else {
					h.take(s)
				}
			}
			if got, ok := errors.AsType[interrupted](context.Cause(ctx)); !ok || got.signal != c.first {
				t.Errorf("the first is %v", context.Cause(ctx))
			}
			got, ok := errors.AsType[interrupted](stop.Cause(ctx))
			if ok != (c.again != 0) || got.signal != c.again {
				t.Errorf("the second is %v", stop.Cause(ctx))
			}
		})
	}
}

func TestCtrlCThatIsTakenStopsNothing(t *testing.T) {
	t.Parallel()
	ctx, requests := stop.New(t.Context())
	taken := make(chan struct{}, 1)
	h := &signalHandler{requests: requests, taker: &signalTaker{receivers: map[syscall.Signal]*receiver{syscall.SIGINT: {to: taken}}}}
	h.take(syscall.SIGINT)
	h.take(syscall.SIGINT)
	if <-taken; ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	h.take(syscall.SIGTERM)
	if ctx.Err() == nil {
		t.Error("SIGTERM was taken too")
	}
}

func TestCtrlCIsTakenUntilItIsReleased(t *testing.T) {
	t.Parallel()
	taker := &signalTaker{}
	taken, release := takeInterrupts(context.WithValue(t.Context(), takerKey{}, taker))
	for range 3 { // more than are received at a time
		if !taker.offer(syscall.SIGINT) {
			t.Error("it was not taken")
		}
	}
	<-taken
	if release(); taker.offer(syscall.SIGINT) {
		t.Error("it was taken after the release")
	}
	select {
	case <-taken:
		t.Error("three are more than one")
	default:
	}
	if _, release := takeInterrupts(t.Context()); release == nil {
		t.Error("nothing releases what no signal reaches")
	}
}

func TestSIGHUPIsTakenUnlessItsTerminalHasClosed(t *testing.T) {
	t.Parallel()
	ctx, requests := stop.New(t.Context())
	taker, closed := &signalTaker{}, false
	h := &signalHandler{requests: requests, taker: taker}
	hangups, release := take(context.WithValue(ctx, takerKey{}, taker), syscall.SIGHUP, func() bool { return closed })
	defer release()
	h.take(syscall.SIGHUP)
	if <-hangups; ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	closed = true
	if h.take(syscall.SIGHUP); ctx.Err() == nil {
		t.Error("the terminal has closed, and nothing stops")
	}
}

// asSignalled makes TestTheSecondSignalEndsItAtOnce the process that is stopped.
const asSignalled = "TEST_AS_SIGNALLED"

// beSignalled says where it is. It exits with 7 when its input ends, with 9 at the second request; with "deaf" it never ends.
func beSignalled(how string) {
	ctx := withSignals(context.Background())
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("cleaning up")
	<-stop.Listening(ctx)
	fmt.Println("listening")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-ended:
		os.Exit(7)
	case <-stop.Now(ctx):
		fmt.Println("at once")
		if how == "deaf" {
			select {}
		}
		os.Exit(9)
	}
}

func TestTheSecondSignalEndsItAtOnce(t *testing.T) {
	if how := os.Getenv(asSignalled); how != "" {
		beSignalled(how)
	}
	heedInherited(t)
	for _, c := range []struct {
		name  string
		how   string
		first syscall.Signal
		again []syscall.Signal
		want  string
	}{
		{"one SIGTERM", "orderly", syscall.SIGTERM, nil, "exit status 7"},
		{"SIGTERM and SIGHUP", "orderly", syscall.SIGTERM, []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}, "exit status 7"},
		{"SIGTERM twice", "orderly", syscall.SIGTERM, []syscall.Signal{syscall.SIGTERM}, "exit status 9"},
		{"Ctrl-C twice", "orderly", syscall.SIGINT, []syscall.Signal{syscall.SIGINT}, "exit status 9"},
		{"Ctrl-C and SIGTERM", "orderly", syscall.SIGINT, []syscall.Signal{syscall.SIGTERM}, "exit status 9"},
		{"a third SIGTERM", "deaf", syscall.SIGTERM, []syscall.Signal{syscall.SIGINT}, "signal: terminated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTheSecondSignalEndsItAtOnce$") //nolint:gosec // this test
			cmd.Env = append(os.Environ(), asSignalled+"="+c.how)
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
			expect("listening")
			for _, s := range c.again {
				err = errors.Join(err, cmd.Process.Signal(s))
			}
			if c.want == "exit status 7" {
				err = errors.Join(err, in.Close())
			}
			if err != nil {
				t.Error(err)
			}
			ended := make(chan error, 1)
			if c.how == "deaf" {
				expect("at once")
			}
			go func() { ended <- cmd.Wait() }()
			awaittest.Until(t, "the end of the command", func() bool {
				if c.how == "deaf" {
					_ = cmd.Process.Signal(syscall.SIGTERM) // until the system's behaviour is back
				}
				select {
				case err = <-ended:
					return true
				default:
					return false
				}
			})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
