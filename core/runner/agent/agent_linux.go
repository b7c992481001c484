package agent

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
)

// errBye means that the host wants the runner to end.
var errBye = errors.New("the host has said Bye")

// agent is the runner: it serves one connection and runs one Execution at a time.
type agent struct {
	out *protocol.Writer
	// relay takes the frames of out where hosts come and go (Config.Silence > 0). It is nil otherwise, and before the first
	// Hello.
	relay *relay
	in    *protocol.MarkerReader
	w     io.Writer
	// lost reports that the framing is broken: only a marker helps. newHost reports that a marker came: a Hello must follow.
	lost, newHost bool
	// rights has the descriptors that came with frames. It is nil where none can come.
	rights *protocol.DescriptorReader
	// workspacePipe is nil unless the host asked for one.
	workspacePipe *workspacePipe
	epoch         uint64
	ready         bool // a Hello was accepted

	*sandbox.Sandbox

	mu      sync.Mutex
	current *execution
	running bool // current has not been answered, or not to the host that is there now
	// startedEvent is what a host that resumes has to hear of current; nil before its start.
	startedEvent *protocol.Started
	// session is the open session, or nil.
	session *session.Session
	// forks belongs to the goroutine of current, and to others once current is cleaned.
	forks forks
	// ahead is the interpreter of Config.Ahead until a program or a session begins.
	ahead atomic.Pointer[ahead]
	// life is held while a session is opened or ended.
	life     sync.Mutex
	nonce    []byte        // of the host that is there now, if it came back
	resumed  chan struct{} // closed when the next one comes
	silence  silence
	deadline *time.Timer // ends the runner; nil: nothing does
	// calls are the requests about a session that are served.
	calls hostCalls
	// tree is the Workspace that is kept for the next Executions, or nil. It belongs to the same goroutines as forks.
	tree *sandbox.Tree
	// dying, if not nil, is called with the error that ends the process, when no program is left.
	dying func(error)
	alarm Alarm
}

func newAgent(inside *sandbox.Container) *agent {
	a := &agent{alarm: Clock, Sandbox: &sandbox.Sandbox{Inside: inside}, resumed: make(chan struct{})}
	a.Sandbox.Die = a.die
	return a
}

// serve serves one host until it is gone. It returns when nothing of any program is left.
func (a *agent) serve(r io.Reader, w io.Writer) error {
	a.out, a.w = protocol.NewWriter(w), w
	var unsent unsent
	a.out.OnError = func(err error) {
		unsent.after(unsentPatience, func() { a.die(fmt.Errorf("a frame to the host could not be sent: %w", err)) })
	}
	var epoch [8]byte
	_, _ = rand.Read(epoch[:]) // never fails (crypto/rand)
	a.epoch = max(binary.BigEndian.Uint64(epoch[:]), 1)
	if conn, ok := r.(*net.UnixConn); ok {
		a.rights = &protocol.DescriptorReader{Conn: conn}
		r = a.rights
	}
	a.in = &protocol.MarkerReader{Src: r}
	err := a.read(protocol.NewReader(a.in))
	unsent.end()
	if errors.Is(err, errBye) {
		a.end()
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) { // the latter if the host has not read everything
		err = nil
	} else if a.relay == nil {
		a.out.Stop(err) // what ends now did not end by anybody's wish, so the host must not get a Result
	}
	a.hostLost()
	return err
}

func (a *agent) read(frames *protocol.Reader) error {
	for {
		err := a.one(frames)
		switch {
		case err == nil:
		case errors.Is(err, protocol.ErrMarker):
			a.lost = false
			a.newHost = true
			a.cut()
		case a.relay != nil && errors.Is(err, protocol.ErrFrame) && !a.lost:
			// Bytes of the host before came among those of this one, or the host before was cut off there.
			a.Logf("%v", err)
			a.lost = true
			_ = a.out.Send(protocol.FrameLost) // a broken connection shows in the reader
		default:
			return err
		}
	}
}

// one reads a frame and handles it.
func (a *agent) one(frames *protocol.Reader) error {
	if a.lost {
		return frames.Skip()
	}
	t, n, err := frames.Header()
	if err != nil {
		return err
	}
	a.heard()
	if a.newHost && t != protocol.FrameHello {
		return fmt.Errorf("%w: frame type %d of a new host", protocol.ErrFrame, t)
	}
	a.newHost = false
	err = a.handle(frames, t, n)
	a.heard() // again, because only the first hello says how long a silence may be
	return err
}

// handle handles one frame. It never waits for the program or for the disk.
func (a *agent) handle(frames *protocol.Reader, t protocol.FrameType, n int) error {
	switch t {
	case protocol.FrameWorkspace, protocol.FrameStdin:
		return a.chunk(frames, t, n)
	case protocol.FrameSession, protocol.FrameSessionData, protocol.FrameSessionEnd, protocol.FrameSessionCredit:
		return a.handleCall(frames, t, n)
	default:
	}
	p, err := frames.Payload(n)
	if err != nil {
		return err
	}
	if !a.ready && t != protocol.FrameHello {
		return fmt.Errorf("%w: frame type %d before a hello", protocol.ErrFrame, t)
	}
	x := a.now()
	switch t {
	case protocol.FrameHello:
		return a.hello(p)
	case protocol.FramePing:
		return a.reply("")
	case protocol.FrameBye:
		return errBye
	case protocol.FrameStart:
		return a.begin(p)
	case protocol.FrameAck:
		acked, err := protocol.ParseAck(p)
		if err == nil && x != nil {
			x.box.Ack(acked)
		}
		return err
	case protocol.FrameCredit:
		c, add, err := protocol.ParseCredit(p)
		if err == nil && c != protocol.ChannelArtifact {
			err = fmt.Errorf("%w: the host grants credit for channel %d", protocol.ErrFrame, c)
		}
		if err == nil && x != nil {
			x.artifacts.Add(add)
		}
		return err
	}
	if t == protocol.FrameFile {
		return a.file(x)
	}
	if x == nil {
		return nil // it was about an Execution that has been answered
	}
	switch t {
	case protocol.FrameWorkspaceEnd:
		x.workspace.End(io.EOF)
	case protocol.FrameStdinEnd:
		x.stdin.End(io.EOF)
	case protocol.FrameCancel:
		x.cancel()
	default:
		return fmt.Errorf("%w: the host sent frame type %d", protocol.ErrFrame, t)
	}
	return nil
}

// chunk takes a chunk of the Workspace or of Stdin.
func (a *agent) chunk(frames *protocol.Reader, t protocol.FrameType, n int) error {
	buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	data := (*buf)[:n]
	if err := frames.Into(data); err != nil {
		return err
	}
	x := a.now()
	if x == nil || n == 0 {
		protocol.ChunkPool.Put(buf)
		return nil
	}
	if t == protocol.FrameWorkspace {
		return x.workspace.Put(protocol.Piece{Buffer: buf, Data: data})
	}
	return x.stdin.Put(protocol.Piece{Buffer: buf, Data: data})
}

// file takes the descriptor that has the Workspace of x. x may be nil.
func (a *agent) file(x *execution) error {
	f := a.rights.Take()
	if f == nil {
		f = a.workspacePipe.enter()
	}
	switch {
	case f == nil:
		return fmt.Errorf("%w: a file frame without a file", protocol.ErrFrame)
	case x == nil:
		return f.Close()
	}
	return x.workspace.Open(f)
}

// now returns the Execution that has not been answered, or nil.
func (a *agent) now() *execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.running {
		return nil
	}
	return a.current
}

func (a *agent) hello(p []byte) error {
	var h protocol.Hello
	if err := json.Unmarshal(p, &h); err != nil {
		return fmt.Errorf("%w: hello: %w", protocol.ErrFrame, err)
	}
	if a.ready {
		return a.resume(h)
	}
	if h.Version != protocol.Version {
		return errors.Join(a.reply(""), fmt.Errorf("%w: the host speaks version %d", protocol.ErrFrame, h.Version))
	}
	if err := a.accept(h.Config); err != nil {
		return errors.Join(a.reply(err.Error()), err)
	}
	return a.reply("")
}

// accept checks a Config and makes what lives as long as the runner.
func (a *agent) accept(cfg protocol.Config) error {
	if st, err := os.Stat(cfg.WorkRoot); err != nil || !st.IsDir() {
		return fmt.Errorf("work_root: must be a folder (got %q)", cfg.WorkRoot)
	}
	if cfg.UID < 0 || cfg.GID < 0 || cfg.UID != 0 && os.Geteuid() != 0 {
		return fmt.Errorf("uid: must not be negative, and must be 0 unless the runner is root (got %d:%d)", cfg.UID, cfg.GID)
	}
	for controller, dir := range cfg.Cgroups {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return fmt.Errorf("cgroups: %s: must be a folder (got %q)", controller, dir)
		}
	}
	if err := a.Open(cfg); err != nil {
		return err
	}
	a.ready = true
	if a.Box != nil {
		a.Go(a.watchBox)
	}
	if cfg.Silence > 0 {
		a.relay = newRelay(a.w)
		a.out = protocol.NewRelayWriter(a.relay, 0)
		a.in.Marker = protocol.Marker(a.epoch)
		a.Go(a.relay.run)
	}
	if cfg.WorkspacePipe {
		d, err := newWorkspacePipe()
		if err != nil {
			return err
		}
		a.workspacePipe = d
	}
	a.setDeadline(0)
	a.startAhead()
	return nil
}

func (a *agent) reply(refusal string) error {
	return a.out.SendJSON(protocol.FrameHelloReply, a.state(refusal))
}

func (a *agent) state(refusal string) protocol.HelloReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := protocol.HelloReply{Version: protocol.Version, Epoch: a.epoch, PID: os.Getpid(), Silence: a.Config.Silence, Kernel: a.Inside.Kernel(), Error: refusal}
	if a.workspacePipe != nil && a.workspacePipe.inside != nil {
		r.WorkspacePipe = a.workspacePipe.outside
	}
	if x := a.current; x != nil {
		r.ExecutionID, r.Running, r.KillGrace = x.start.ExecutionID, a.running, x.start.Limits.KillGrace
	}
	return r
}

func (a *agent) begin(p []byte) error {
	var start protocol.Start
	if err := json.Unmarshal(p, &start); err != nil {
		return fmt.Errorf("%w: start: %w", protocol.ErrFrame, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return fmt.Errorf("%w: a start while an Execution runs", protocol.ErrFrame)
	}
	before := a.current
	x := newExecution(a, start)
	if a.relay != nil {
		x.sender = a.relay.follow(x.box.Backlog)
		if before != nil {
			before.release()
		}
	}
	a.current, a.running, a.startedEvent = x, true, nil
	a.setDeadline(start.Deadline)
	if start.Session || a.session != nil {
		a.Go(func() { x.runInSession(before) })
		return nil
	}
	a.Go(func() { x.run(before) })
	return nil
}

// answer sends the Result by out. The host may then send the next Start.
func (a *agent) answer(x *execution, out *protocol.Writer) {
	a.mu.Lock()
	if a.relay != nil && (a.current != x || !a.relay.serves(out.Generation)) {
		a.mu.Unlock()
		return // another Execution has begun; or another host has come, and is to get all of it
	}
	a.running = false
	a.mu.Unlock()
	if raw, err := protocol.EncodeResult(x.res); err != nil {
		a.die(fmt.Errorf("answer: %w", err)) // the host must not wait for ever
	} else if out == x.box.Out {
		_ = x.box.Last(protocol.FrameExited, raw) // a broken connection shows in the reader
	} else {
		_ = out.SendRaw(protocol.FrameExited, raw) // likewise
	}
	x.dieIfStuck()
}

// dieIfStuck ends the runner if a process of the program does not die.
func (x *execution) dieIfStuck() {
	if x.stuck {
		x.agent.die(fmt.Errorf("the program of %s does not die", x.start.ExecutionID))
	}
}

// started tells the host that x runs. Most programs and cells end before a caller could act on their start, so Started waits a moment
// for the output and the Result. A host that may come back gets it at once, and so does one whose program is noticed outside.
func (a *agent) started(x *execution, s protocol.Started) {
	s, out := a.noteStarted(x, s)
	if a.relay != nil || x.isNoticed() {
		_ = out.SendJSON(protocol.FrameStarted, s) // a broken connection shows in the reader
		return
	}
	raw, err := json.Marshal(s)
	if err != nil {
		a.Logf("started: %v", err)
		return
	}
	_ = x.box.First(protocol.FrameStarted, raw) // a broken connection shows in the reader
}

// isNoticed reports whether something outside of the sandbox may notice what x does. Such a program must not run twice. If a host is killed
// before it knows of Started, the Execution runs again. A session ends with its host, so nothing in it runs again.
func (x *execution) isNoticed() bool {
	return !x.start.Session && (x.agent.Box == nil || x.start.Network || x.start.Directory != "")
}

// noteStarted keeps s for a host that resumes. It returns s as the present host gets it, and the Writer for it. A host
// that resumes gets s with its introduction, and not by that Writer.
func (a *agent) noteStarted(x *execution, s protocol.Started) (protocol.Started, *protocol.Writer) {
	if a.relay != nil {
		s.PythonVersion, s.Requirements = x.start.PythonVersion, x.start.Requirements
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startedEvent = &s
	if a.relay != nil {
		return s, a.relay.writer()
	}
	return s, a.out
}

// watchBox ends the runner when its box has ended, because nothing can run any more. The Execution that ran is answered first.
func (a *agent) watchBox() {
	<-a.Box.Over
	if x := a.now(); x != nil {
		x.awaitCleaned()
	}
	if !a.Box.Closing() {
		a.die(sandbox.ErrBoxEnded)
	}
}

// die kills all programs and ends the process, because of an error of the runner's own.
func (a *agent) die(err error) {
	a.Logf("%v", err)
	a.killEverything()
	if a.dying != nil {
		a.dying(err)
	}
	os.Exit(ExitBroken)
}

func (a *agent) killEverything() {
	a.mu.Lock()
	x := a.current
	a.mu.Unlock()
	a.Box.Destroy()
	for range 5 {
		if x != nil && x.group != nil {
			a.KillAll(x.group)
		} else {
			a.KillAll(&sandbox.Group{Everything: a.Inside != nil})
		}
		time.Sleep(time.Millisecond)
	}
}
