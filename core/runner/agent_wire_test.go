//go:build linux

package runner

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// greeted is a runner with a host that speaks frames itself, after the hello.
func greeted(t *testing.T, cfg Config) (*testRunner, *rawHost, protocol.HelloReply) {
	t.Helper()
	r, host := startRaw(t)
	must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: cfg}))
	var reply protocol.HelloReply
	must(t, json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &reply))
	return r, host, reply
}

// patient is a Config whose runner awaits its host.
func patient(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t)
	cfg.Silence = time.Minute
	return cfg
}

// next reads one frame.
func (h *rawHost) next(t *testing.T) (protocol.FrameType, []byte) {
	t.Helper()
	ft, n, err := h.Header()
	must(t, err)
	p, err := h.Payload(n)
	must(t, err)
	return ft, p
}

func TestAFrameAtTheWrongTimeEndsTheRunner(t *testing.T) {
	for name, send := range map[string]func(t *testing.T, h *rawHost){
		"a start while an execution runs": func(t *testing.T, h *rawHost) {
			must(t, h.SendJSON(protocol.FrameStart, shell("sleep 1000000")))
			must(t, h.SendJSON(protocol.FrameStart, shell("exit 0")))
		},
		"credit for what only the runner grants": func(t *testing.T, h *rawHost) {
			must(t, h.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelStdin, 1)...))
		},
		"a second hello": func(t *testing.T, h *rawHost) {
			must(t, h.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: Config{WorkRoot: "/"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, host, _ := greeted(t, testConfig(t))
			send(t, host)
			if _, err := io.Copy(io.Discard, host.Conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the runner did not end: %v", err)
			}
			var exit *exec.ExitError
			if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitBroken || strings.Contains(r.stderr.String(), "panic") {
				t.Errorf("%v\n%s", err, r.stderr)
			}
		})
	}
}

func TestAHelloOfAnotherVersionIsRefused(t *testing.T) {
	r, host := startRaw(t)
	must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version + 1, Config: testConfig(t)}))
	var reply protocol.HelloReply
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &reply); err != nil || reply.Version != protocol.Version {
		t.Errorf("%+v %v", reply, err)
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != agent.ExitBroken {
		t.Errorf("%v\n%s", err, r.stderr)
	}

	_, host, reply = greeted(t, patient(t))
	must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version + 1, Resume: true}))
	if err := json.Unmarshal(host.expect(t, protocol.FrameHelloReply), &reply); err != nil || reply.Error == "" {
		t.Errorf("to resume: %+v %v", reply, err)
	}
}

// A host that is gone before it has read everything resets the connection. The runner ends as it does after any other host.
func TestAHostThatLeavesFramesUnreadEndsTheRunner(t *testing.T) {
	r, host, _ := greeted(t, testConfig(t))
	must(t, host.Send(protocol.FramePing))
	if _, err := io.ReadFull(host.Conn, make([]byte, 1)); err != nil { // the reply is longer
		t.Fatal(err)
	}
	must(t, host.Conn.Close())
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr)
	}
}

func TestAConfigThatCannotBeHadIsRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		as     *syscall.SysProcAttr
	}{
		"cgroups: ": {func(c *Config) { c.Cgroups = sandbox.Cgroups{"memory": "/none"} }, nil},
		"uid: ":     {func(c *Config) { c.UID = -1 }, nil},
		"and must be 0 unless the runner is root (got 1:1)": {
			func(c *Config) { c.UID, c.GID = 1, 1 }, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(testUID), Gid: uint32(testUID)}},
		},
	} {
		if c.as != nil && !isRoot() {
			c.as = nil // we are not root already
		}
		cfg := Config{WorkRoot: workRoot(t)}
		c.change(&cfg)
		r, host := startProcess(t, c.as)
		conn, err := NewConn(host, cfg)
		if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
		if err == nil {
			_ = conn.Close() // it should not be
		}
		_ = r.cmd.Wait() // its status is not what this is about
	}
}

// A new host begins with a hello: what comes else is the rest of what the host before had on its way.
func TestANewHostThatDoesNotBeginWithAHelloIsTold(t *testing.T) {
	_, host, reply := greeted(t, patient(t))
	for range 2 { // it finds the next one as well
		_, err := host.Conn.Write(protocol.Marker(reply.Epoch))
		must(t, err)
		must(t, host.Send(protocol.FramePing))
		if ft, p := host.next(t); ft != protocol.FrameLost {
			t.Fatalf("got a frame of type %d: %s", ft, p)
		}
	}
}

// A host that hears nothing introduces itself again. The second time must leave no trace among the frames.
func TestAHostThatIntroducesItselfTwiceIsAnsweredOnce(t *testing.T) {
	_, host, _ := greeted(t, patient(t))
	nonce := []byte(strings.Repeat("n", protocol.MarkerBytes))
	introduce := func() {
		t.Helper()
		must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Resume: true, Nonce: nonce}))
	}
	introduce()
	must(t, host.Seek(nonce))
	if ft, p := host.next(t); ft != protocol.FrameHelloReply {
		t.Fatalf("got a frame of type %d: %s", ft, p)
	}
	introduce()
	must(t, host.Send(protocol.FramePing))
	if ft, p := host.next(t); ft != protocol.FrameHelloReply {
		t.Fatalf("got a frame of type %d: %s", ft, p)
	}
}

// Artifacts that wait for the credit of a host that is gone are sent again to the next host.
func TestArtifactsDoNotWaitForAHostThatIsGone(t *testing.T) {
	_, host, _ := greeted(t, patient(t))
	start := shell("head -c 3000000 /dev/zero > big")
	start.Outputs = []string{"big"}
	must(t, host.SendJSON(protocol.FrameStart, start))
	for got := 0; got < protocol.ArtifactWindow; {
		got += len(host.expect(t, protocol.FrameArtifactData)) // and grants nothing
	}
	must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Resume: true, ExecutionID: start.ExecutionID}))
	host.expect(t, protocol.FrameHelloReply)
	for total := 0; ; {
		ft, p := host.next(t)
		switch ft {
		case protocol.FrameArtifactData:
			total += len(p)
			must(t, host.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelArtifact, len(p))...))
			continue
		case protocol.FrameExited:
		default:
			continue
		}
		if total != 3000000 {
			t.Errorf("%d bytes came before the Result", total)
		}
		break
	}
}

// A host that comes before the program has started is not told of the Started of the Execution before.
func TestStartedOfOneExecutionIsNotToldOfTheNext(t *testing.T) {
	_, host, _ := greeted(t, patient(t))
	must(t, host.SendJSON(protocol.FrameStart, shell("exit 0")))
	host.expect(t, protocol.FrameExited)
	second := shell("exit 0")
	second.ExecutionID, second.Workspace = "exe_second", true // which never comes
	must(t, host.SendJSON(protocol.FrameStart, second))
	must(t, host.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Resume: true, ExecutionID: "exe_second"}))
	host.expect(t, protocol.FrameHelloReply)
	must(t, host.Send(protocol.FrameCancel))
	for {
		ft, p := host.next(t)
		if ft == protocol.FrameStarted {
			t.Fatalf("it was told of %s", p)
		}
		if ft == protocol.FrameExited {
			return
		}
	}
}

// Bye ends the program and removes what it had, also where hosts may come and go.
func TestByeLeavesNothing(t *testing.T) {
	cfg := patient(t)
	r, host, _ := greeted(t, cfg)
	must(t, host.SendJSON(protocol.FrameStart, shell("touch file; sleep 1000000")))
	host.expect(t, protocol.FrameStarted)
	must(t, host.Send(protocol.FrameBye))
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr)
	}
	if left := sandbox.Cgroups(cfg.Cgroups).Children(); len(left) > 0 {
		t.Errorf("control groups left behind: %v", left)
	}
	checkEmpty(t, cfg.WorkRoot)
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}
