//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

// survivor follows an Execution over as many hosts as it takes.
type survivor struct {
	*switchboard
	*record
	epoch uint64
	hosts int
	// next says where the next host is cut; nil: never.
	next func() (up, down int)
}

func newSurvivor(tb testing.TB, cfg Config) *survivor {
	tb.Helper()
	s := &survivor{switchboard: startSwitchboard(tb, nil), record: newRecord()}
	conn, err := NewConn(s.attach(-1, -1), cfg)
	if err != nil {
		tb.Fatalf("hello: %v\n%s", err, &s.err)
	}
	s.epoch = conn.Epoch()
	if err := conn.Detach(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// survivorConfig is that of a container: the runner's own uid, and the work folder itself.
func survivorConfig(tb testing.TB) Config {
	tb.Helper()
	return Config{WorkRoot: workRoot(tb), UseWorkRoot: true, Silence: time.Minute}
}

// run runs start on a host that is cut there, then follows it on others.
func (s *survivor) run(tb testing.TB, start Start, in RunInput, up, down int) (executor.Result, error) {
	tb.Helper()
	conn, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	if err != nil {
		tb.Fatalf("the first host: %v\n%s", err, &s.err)
	}
	conn.rw.(*client).limit(up, down)
	res, err := conn.Run(context.Background(), start, in, s)
	s.detach(tb, conn)
	for err != nil {
		if executor.CodeOf(err) != executor.Unavailable {
			return res, err
		}
		up, down = -1, -1
		if s.next != nil {
			up, down = s.next()
		}
		var again *Conn
		again, err = ResumeConn(s.attach(up, down), ResumeOptions{
			Epoch: s.epoch, ExecutionID: start.ExecutionID, Stdout: int64(s.out[0].Len()), Stderr: int64(s.out[1].Len()),
		})
		if err != nil {
			continue
		}
		s.hosts++
		res, err = again.Follow(context.Background(), s)
		s.detach(tb, again)
	}
	return res, nil
}

func (s *survivor) detach(tb testing.TB, conn *Conn) {
	tb.Helper()
	if err := conn.Detach(); err != nil {
		tb.Error(err)
	}
}

func (s *survivor) reset() { s.record = newRecord() }

// limit cuts a client after so many bytes from now on.
func (c *client) limit(up, down int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.down = up, down
}

// talkative writes to both streams, in the middle of which a host may vanish, and leaves a file.
const talkative = `
printf 'first line\n'; printf 'an error\n' >&2
i=0; while [ $i -lt 30 ]; do printf 'line %d\n' $i; i=$((i+1)); done
printf 'kept' > out.txt; printf 'the end\n' >&2; exit 3`

func talkativeStart() Start {
	start := shell(talkative)
	start.Outputs = []string{"out.txt"}
	return start
}

func (s *survivor) checkTalkative(t *testing.T, res executor.Result, err error) {
	t.Helper()
	var want strings.Builder
	want.WriteString("first line\n")
	for i := range 30 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if err != nil || describe(res) != "failed exit 3" || s.badOffset || len(res.Artifacts) != 1 {
		t.Fatalf("%v %s, bad offset %v, artifacts %v\n%s", err, describe(res), s.badOffset, res.Artifacts, &s.err)
	}
	if s.stdout() != want.String() || s.stderr() != "an error\nthe end\n" || s.files["out.txt"] != "kept" {
		t.Fatalf("%q\n%q\n%v", s.stdout(), s.stderr(), s.files)
	}
	if res.StdoutBytes != int64(want.Len()) {
		t.Errorf("%d bytes counted", res.StdoutBytes)
	}
}

func TestAHostCutAnywhereInWhatItReadsIsSucceededByAnother(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(map[bool]string{false: "swallowed", true: "held in the pipe"}[hold], func(t *testing.T) {
			s := newSurvivor(t, survivorConfig(t))
			s.hold = hold
			for _, at := range positions(1800) {
				s.reset()
				res, err := s.run(t, talkativeStart(), RunInput{}, -1, at)
				s.checkTalkative(t, res, err)
			}
		})
	}
}

// positions are the byte positions to cut at: the first ones all, of the others a sample that differs every time.
func positions(end int) []int {
	var all []int
	for i := 1; i < end; i++ {
		if i < 60 || rand.IntN(8) == 0 { //nolint:gosec // a sample
			all = append(all, i)
		}
	}
	return all
}

func TestAHostCutAnywhereInWhatItSendsIsSucceededByAnother(t *testing.T) {
	s := newSurvivor(t, survivorConfig(t))
	tarball := readAll(t, makeTar(t, file("data", strings.Repeat("0123456789", 50))).reader(t))
	input := strings.Repeat("stdin ", 200)
	start := shell("cat data; echo; cat")
	whole := len(tarball) + len(input) + 900
	seen := map[string]int{}
	for _, at := range positions(whole) {
		s.reset()
		start.ExecutionID = fmt.Sprint("exe_", at)
		res, err := s.run(t, start, RunInput{Workspace: strings.NewReader(string(tarball)), Stdin: strings.NewReader(input)}, at, -1)
		switch {
		case executor.CodeOf(err) == executor.NotFound:
			seen["never started"]++
		case err != nil:
			t.Fatalf("cut at %d: %v\n%s", at, err, &s.err)
		case describe(res) == "failed prepare/unavailable":
			seen["no workspace"]++
		case describe(res) == "succeeded exit 0":
			data, rest, _ := strings.Cut(s.stdout(), "\n")
			if len(data) != 500 || !strings.HasPrefix(input, rest) {
				t.Fatalf("cut at %d: %q", at, s.stdout())
			}
			if rest == input {
				seen["all of it"]++
			} else {
				seen["stdin cut"]++
			}
		default:
			t.Fatalf("cut at %d: %s %+v", at, describe(res), res.Failure)
		}
	}
	for _, outcome := range []string{"never started", "no workspace", "stdin cut", "all of it"} {
		if seen[outcome] == 0 {
			t.Errorf("no cut led to %q: %v", outcome, seen)
		}
	}
}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAFloodSurvivesManyHosts(t *testing.T) {
	for _, hold := range []bool{false, true} {
		s := newSurvivor(t, survivorConfig(t))
		s.hold = hold
		cuts := 0
		s.next = func() (int, int) {
			if cuts++; cuts > 40 {
				return -1, -1
			}
			return -1, 1 + rand.IntN(600_000) //nolint:gosec // a sample
		}
		start := python(`
import sys, threading
def flood(f, mark):
    for i in range(3000): f.write("%s %d %s\n" % (mark, i, "x" * (i * 7 % 2000)))
t = threading.Thread(target=flood, args=(sys.stderr, "err")); t.start()
flood(sys.stdout, "out"); t.join()
`)
		res, err := s.run(t, start, RunInput{}, -1, 1000)
		var want [2]strings.Builder
		for i := range 3000 {
			for j, mark := range []string{"out", "err"} {
				fmt.Fprintf(&want[j], "%s %d %s\n", mark, i, strings.Repeat("x", i*7%2000))
			}
		}
		if err != nil || describe(res) != "succeeded exit 0" || s.badOffset || s.stdout() != want[0].String() || s.stderr() != want[1].String() {
			t.Errorf("%v %s bad offset %v: %d and %d bytes\n%s", err, describe(res), s.badOffset, len(s.stdout()), len(s.stderr()), &s.err)
		}
		if s.hosts < 5 {
			t.Errorf("only %d hosts", s.hosts)
		}
	}
}

func TestASinkWhoseOwnerIsGoneLetsTheProgramGoOn(t *testing.T) {
	s := newSurvivor(t, survivorConfig(t))
	for after := range 6 {
		s.reset()
		seen := 0
		s.emit = func(executor.Event) error {
			if seen++; seen == after+1 {
				return executor.ErrCallerGone
			}
			return nil
		}
		hosts := s.hosts
		res, err := s.run(t, talkativeStart(), RunInput{}, -1, -1)
		s.checkTalkative(t, res, err)
		if seen > after && s.hosts == hosts {
			t.Errorf("after %d events nobody succeeded the first host", after)
		}
	}
}

func TestAResultIsHeldUntilTheNextStart(t *testing.T) {
	s := newSurvivor(t, survivorConfig(t))
	res, err := s.run(t, talkativeStart(), RunInput{}, -1, -1)
	s.checkTalkative(t, res, err)
	follow := func() (*Conn, error) {
		s.reset()
		return ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch, ExecutionID: "exe_test"})
	}
	// Everything was acknowledged up to a point, and less than a window was not: it comes again, however often one asks.
	for range 3 {
		conn, err := follow()
		if err != nil {
			t.Fatal(err)
		}
		res, err := conn.Follow(t.Context(), s)
		s.checkTalkative(t, res, err)
		// The same host may go on with the next one, once it has all of this one.
		s.reset()
		next := shell("echo next")
		next.ExecutionID = "exe_test"
		if res, err := conn.Run(t.Context(), next, RunInput{}, s); err != nil || describe(res) != "succeeded exit 0" || s.stdout() != "next\n" {
			t.Errorf("%v %s %q", err, describe(res), s.stdout())
		}
		s.reset()
		if res, err := conn.Run(t.Context(), talkativeStart(), RunInput{}, s); err != nil {
			t.Errorf("%v %s", err, describe(res))
		}
		s.detach(t, conn)
	}
	if _, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch, ExecutionID: "exe_other"}); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("another execution: %v", err)
	}
	if _, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch, ExecutionID: "exe_test", Stdout: 1 << 30}); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("offsets that do not exist: %v", err)
	}
	conn, err := follow() // and after those it is still there
	if err != nil {
		t.Fatal(err)
	}
	res, err = conn.Follow(t.Context(), s)
	s.checkTalkative(t, res, err)
	if _, err := conn.Follow(t.Context(), s); executor.CodeOf(err) != executor.Internal {
		t.Errorf("a second Follow: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("Close did not end the runner well: %v\n%s", err, &s.err)
	}
}

func TestATimeoutHoldsWithoutAHost(t *testing.T) {
	s := newSurvivor(t, survivorConfig(t))
	s.hold = true // nobody reads: the pipe fills up
	start := shell("exec yes")
	start.ExecutionID, start.Limits.OutputBytes = fmt.Sprint("exe_", rand.Uint64()), executor.Unlimited
	s.next = func() (int, int) {
		program := (<-s.started).PID
		toldtest.Tell(t, start.ExecutionID, agent.LimitTimeout)
		awaittest.Until(t, "the program's end", func() bool { return isDead(program) })
		return -1, -1
	}
	res, err := s.run(t, start, RunInput{}, -1, 2000)
	if err != nil || res.Status != executor.StatusTimedOut || s.badOffset || int64(len(s.stdout())) != res.StdoutBytes {
		t.Errorf("%v %s, %d of %d bytes", err, describe(res), len(s.stdout()), res.StdoutBytes)
	}
}

func TestWhatAnotherHostHadOnItsWayMayComeBetween(t *testing.T) {
	cfg := survivorConfig(t)
	s := newSurvivor(t, cfg)
	for name, garbage := range map[string][]byte{
		"zeros":                  make([]byte, 100),
		"an unknown frame":       {0, 0, 0, 1, 200, 0},
		"half a workspace frame": append([]byte{0, 4, 0, 0, byte(protocol.FrameWorkspace)}, make([]byte, 1000)...),
		"half a start":           append([]byte{0, 200, 0, 0, byte(protocol.FrameStart)}, `{"execution_id":`...),
		"half a marker":          protocol.Marker(s.epoch)[:9],
		"another's marker":       append(protocol.Marker(s.epoch+1), 1, 2, 3),
		"half a hello":           append(protocol.Marker(s.epoch), 0, 0, 1, 0, byte(protocol.FrameHello), '{'),
	} {
		t.Run(name, func(t *testing.T) {
			s.reset()
			if _, err := s.in.Write(garbage); err != nil {
				t.Fatal(err)
			}
			res, err := s.run(t, talkativeStart(), RunInput{}, -1, 700)
			s.checkTalkative(t, res, err)
		})
	}
	t.Run("after the introduction it costs the connection, and nothing else", func(t *testing.T) {
		s.reset()
		conn, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-s.started
			_, _ = s.in.Write([]byte{1, 2, 3, 4, 5, 6, 7, 8})
		}()
		start := shell("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
		_, err = conn.Run(t.Context(), start, RunInput{}, s)
		if executor.CodeOf(err) != executor.Unavailable {
			t.Fatalf("got %v", err)
		}
		s.detach(t, conn)
		must(t, os.WriteFile(filepath.Join(cfg.WorkRoot, "go"), nil, 0o600))
		again, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch, ExecutionID: "exe_test", Stdout: int64(s.out[0].Len())})
		if err != nil {
			t.Fatal(err)
		}
		res, err := again.Follow(t.Context(), s)
		if err != nil || describe(res) != "succeeded exit 0" || s.stdout() != "one\ntwo\n" {
			t.Errorf("%v %s %q", err, describe(res), s.stdout())
		}
		s.detach(t, again)
	})
}

func TestTheHostsPingsKeepTheRunner(t *testing.T) {
	t.Parallel()
	cfg := survivorConfig(t)
	awaittest.Ladder(t, 2*time.Second, func(silence time.Duration) (executor.Result, bool) {
		cfg.Silence = silence
		r := startSwitchboard(t, nil)
		conn, err := NewConn(r.attach(-1, -1), cfg)
		must(t, err)
		rec := newRecord()
		res, err := conn.Run(t.Context(), shell(fmt.Sprintf("sleep %f; echo still here", (silence*3/2).Seconds())), RunInput{}, rec)
		if kept := err == nil; !kept { // the machine was so busy that the one was silent to the other for that long
			_ = errors.Join(conn.Close(), r.cmd.Wait())
			return res, kept
		}
		if rec.stdout() != "still here\n" {
			t.Errorf("%s %q\n%s", describe(res), rec.stdout(), &r.err)
		}
		must(t, conn.Detach())
		var exit *exec.ExitError
		if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitSilence {
			t.Errorf("without a host: %v\n%s", err, &r.err)
		}
		if err := conn.Check(t.Context()); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a check of what is gone: %v", err)
		}
		return res, true
	})
}

func TestADeadlineEndsTheRunnerWhateverItsHostSays(t *testing.T) {
	t.Parallel()
	pid := awaittest.Ladder(t, 500*time.Millisecond, func(deadline time.Duration) (pid int, reached bool) {
		start := shell("sleep 1000000")
		start.Deadline = deadline
		r := startSwitchboard(t, nil)
		conn, err := NewConn(r.attach(-1, -1), survivorConfig(t))
		must(t, err)
		rec := newRecord()
		began := time.Now()
		if res, err := conn.Run(t.Context(), start, RunInput{}, rec); err == nil && res.Status != executor.StatusKilled {
			t.Error(describe(res))
		}
		var exit *exec.ExitError
		if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitDeadline {
			t.Errorf("%v\n%s", err, &r.err)
		}
		if time.Now().Before(began.Add(deadline)) {
			t.Errorf("a deadline of %s came too early", deadline)
		}
		must(t, conn.Close())
		select {
		case started := <-rec.started:
			return started.PID, true
		default:
			return 0, false
		}
	})
	awaittest.Until(t, "the program's end", func() bool { return isDead(pid) })
}
