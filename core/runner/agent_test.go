//go:build linux

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// rawHost speaks frames itself.
type rawHost struct {
	*protocol.Reader
	*protocol.Writer
	net.Conn
}

func startRaw(t *testing.T) (*testRunner, *rawHost) {
	t.Helper()
	r, conn := startProcess(t, nil)
	context.AfterFunc(awaittest.Context(t), func() { _ = conn.Close() }) // a hang is a failure
	return r, &rawHost{protocol.NewReader(conn), protocol.NewWriter(conn), conn}
}

// expect reads frames until one of type want.
func (h *rawHost) expect(t *testing.T, want protocol.FrameType) []byte {
	t.Helper()
	for {
		ft, n, err := h.Header()
		if err != nil {
			t.Fatalf("no frame of type %d: %v", want, err)
		}
		p, err := h.Payload(n)
		if err != nil {
			t.Fatal(err)
		}
		if ft == want {
			return p
		}
	}
}

func TestABrokenProtocolEndsTheRunner(t *testing.T) {
	for name, send := range map[string][]byte{
		"garbage":                          []byte("GET / HTTP/1.1\r\n\r\n"),
		"a frame before hello":             {0, 0, 0, 0, byte(protocol.FrameCancel)},
		"a frame that only runners send":   {0, 0, 0, 0, byte(protocol.FrameArtifactEnd)},
		"a length that lies":               {0xff, 0xff, 0xff, 0xff, byte(protocol.FrameHello)},
		"a hello that is no JSON":          {0, 0, 0, 1, byte(protocol.FrameHello), '{'},
		"a hello of another version":       append([]byte{0, 0, 0, 14, byte(protocol.FrameHello)}, `{"version":99}`...),
		"a hello with a wrong work folder": append([]byte{0, 0, 0, 44, byte(protocol.FrameHello)}, `{"version":1,"config":{"work_root":"/none"}}`...),
	} {
		t.Run(name, func(t *testing.T) {
			r, host := startRaw(t)
			if _, err := host.Conn.Write(send); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, host.Conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the runner did not end: %v", err)
			}
			var exit *exec.ExitError
			if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitBroken {
				t.Errorf("%v\n%s", err, r.stderr)
			}
		})
	}
}

func TestAWrongConfigIsRefusedWithWords(t *testing.T) {
	r, host := startProcess(t, nil)
	_, err := NewConn(host, Config{WorkRoot: "/none"})
	if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "/none") {
		t.Errorf("got %v", err)
	}
	_ = r.cmd.Wait() // its status is not what this is about
}

func TestAPingIsAnswered(t *testing.T) {
	_, host := startRaw(t)
	if err := host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: Config{WorkRoot: workRoot(t)}}); err != nil {
		t.Fatal(err)
	}
	var first, second protocol.HelloReply
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &first); err != nil {
		t.Fatal(err)
	}
	if err := host.Send(protocol.FramePing); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &second); err != nil || first != second || first.Epoch == 0 {
		t.Errorf("%+v %+v %v", first, second, err)
	}
}

func TestAHostThatComesBackGetsWhatItMissed(t *testing.T) {
	_, host := startRaw(t)
	cfg := testConfig(t)
	cfg.Silence = time.Minute
	if err := host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: cfg}); err != nil {
		t.Fatal(err)
	}
	var reply protocol.HelloReply
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &reply); err != nil {
		t.Fatal(err)
	}
	if err := host.SendJSON(protocol.FrameStart, shell("printf 0123456789; printf err >&2")); err != nil {
		t.Fatal(err)
	}
	host.expect(t, protocol.FrameExited)
	if err := host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Resume: true, ExecutionID: "exe_test", Stderr: 3}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &reply); err != nil || reply.ExecutionID != "exe_test" {
		t.Fatalf("%+v %v", reply, err)
	}
	host.expect(t, protocol.FrameStarted)
	o, err := protocol.ParseOutput(host.expect(t, protocol.FrameOutput))
	if err != nil || o.Stream != executor.Stdout || o.Offset != 0 || string(o.Data) != "0123456789" {
		t.Errorf("%+v %v", o, err)
	}
	var res executor.Result
	if err := json.Unmarshal(host.expect(t, protocol.FrameExited), &res); err != nil || describe(res) != "succeeded exit 0" {
		t.Errorf("%s %v", describe(res), err)
	}
}

func TestSilenceKillsTheProgramOnceItHasLastedLongEnough(t *testing.T) {
	pid := awaittest.Ladder(t, 3*time.Second, func(silence time.Duration) (int, bool) {
		r, host := startRaw(t)
		cfg := testConfig(t)
		cfg.Silence = silence
		must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: cfg}))
		began := time.Now()
		must(t, host.SendJSON(protocol.FrameStart, shell("sleep 1000000")))
		// All that the runner says until it ends.
		var s executor.Started
		for {
			ft, n, err := host.Header()
			if err != nil {
				break
			}
			p, err := host.Payload(n)
			must(t, err)
			if ft == protocol.FrameStarted {
				must(t, json.Unmarshal(p, &s))
			}
		}
		var exit *exec.ExitError
		if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitSilence {
			t.Errorf("%v\n%s", err, r.stderr)
		}
		checkEmpty(t, cfg.WorkRoot)
		if time.Now().Before(began.Add(silence * 3 / 4)) {
			t.Errorf("a silence of %s was over after less than three quarters of that", silence)
		}
		return s.PID, s.PID != 0
	})
	if !isDead(pid) {
		t.Errorf("process %d is the program, and alive", pid)
	}
}

// isDead reports whether a process has ended.
func isDead(pid int) bool {
	state := sandbox.ReadProcess(pid).State
	return state == 0 || state == 'Z'
}

func TestTheRunnersDeathIsUnavailableAndKillsTheProgram(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	pid := make(chan int, 1)
	go func() {
		s := <-rec.started
		pid <- s.PID
		_ = r.cmd.Process.Kill()
	}()
	_, err := r.Run(t.Context(), shell("sleep 1000000"), RunInput{}, rec)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	<-r.Done()
	if _, err := r.Run(t.Context(), shell("true"), RunInput{}, newRecord()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the next one: %v", err)
	}
	program := <-pid
	awaittest.Until(t, "the program's end", func() bool { return isDead(program) })
}

func TestSIGTERMEndsTheRunnerAndItsProgram(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	pid := make(chan int, 1)
	go func() {
		s := <-rec.started
		pid <- s.PID
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}()
	// The Result may still come through, or the connection may end first.
	if res, err := r.Run(t.Context(), shell("sleep 1000000"), RunInput{}, rec); err == nil && res.Status != executor.StatusKilled {
		t.Error(describe(res))
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr)
	}
	if !isDead(<-pid) {
		t.Error("the program is alive")
	}
}

func TestStandardStreamsServeAsAConnection(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "runner", "--stdio") //nolint:gosec // ourselves
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := NewConn(struct {
		io.Reader
		io.WriteCloser
	}{out, in}, testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecord()
	res, err := conn.Run(t.Context(), shell("cat; echo more"), RunInput{Stdin: strings.NewReader("in ")}, rec)
	if err != nil || describe(res) != "succeeded exit 0" || rec.stdout() != "in more\n" {
		t.Error(err, describe(res), rec.stdout())
	}
	if err := errors.Join(conn.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
