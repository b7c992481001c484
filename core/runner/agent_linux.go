package runner

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// errBye: the host wants the runner to end.
var errBye = errors.New("the host has said good-bye")

// agent is the resident runner: it serves one connection and runs one Execution at a time.
type agent struct {
	out *frameWriter
	// up is behind out once a host may go away and come back (Config.Silence > 0); nil before, and otherwise.
	up *uplink
	in *markReader
	w  io.Writer
	// lost: what the host sends is not understood, a marker is awaited. newHost: it came, a hello must follow.
	lost, newHost bool
	// rights has the descriptors that came along; nil: none can come.
	rights *rightsReader
	// door is of a host that asked for one; nil: none, or it is not needed any more.
	door  *door
	epoch uint64
	cfg   Config
	ready bool // a Hello was accepted
	// disk holds what programs write; nil without Config.Tmpfs.
	disk *disk

	inside *container // nil: it is not PID 1

	plain *spawner
	empty *spawner // in an empty network namespace; nil without Config.NetworkNamespace

	mu      sync.Mutex
	current *execution
	running bool // current has not been answered, or not to the host that is there now
	// For a host that comes back: what it may have missed of current.
	startedEvent *startedFrame
	// session is open; nil: none.
	session *session
	// life is held while one is opened or ended.
	life    sync.Mutex
	nonce   []byte        // of the host that is there now, if it came back
	resumed chan struct{} // closed when the next one comes
	// Of Config and of Start; nil: none.
	lifeDeadline, startDeadline *time.Timer
	groups                      int
	// calls about a session that are at work.
	calls hostCalls
}

// serve speaks with one host until it is gone, and returns when nothing of any program is left.
func (a *agent) serve(r io.Reader, w io.Writer) error {
	a.out, a.w = &frameWriter{w: w}, w
	a.resumed = make(chan struct{})
	var epoch [8]byte
	_, _ = rand.Read(epoch[:]) // never fails (crypto/rand)
	a.epoch = max(binary.BigEndian.Uint64(epoch[:]), 1)
	if conn, ok := r.(*net.UnixConn); ok {
		a.rights = &rightsReader{conn: conn}
		r = a.rights
	}
	a.in = &markReader{src: r}
	silence := newSilence(a)
	err := a.read(newFrameReader(a.in), silence)
	if errors.Is(err, errBye) {
		silence.end()
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else if a.up == nil {
		a.out.stop(err) // what ends now did not end by anybody's wish, so the host must not get a Result
	}
	silence.hostLost()
	return err
}

func (a *agent) read(frames *frameReader, silence *silence) error {
	for {
		err := a.one(frames, silence)
		switch {
		case err == nil:
		case errors.Is(err, errMarker):
			a.lost = false
			a.newHost = true
			a.cut()
		case a.up != nil && errors.Is(err, errFrame) && !a.lost:
			// What the host before had on its way came among what this one sends, or it was cut off there.
			a.logf("%v", err)
			a.lost = true
			_ = a.out.frame(frameLost) // a broken connection shows in the reader
		default:
			return err
		}
	}
}

// one reads a frame and does what it asks for.
func (a *agent) one(frames *frameReader, silence *silence) error {
	if a.lost {
		return frames.skip()
	}
	t, n, err := frames.header()
	if err != nil {
		return err
	}
	silence.heard()
	if a.newHost && t != frameHello {
		return fmt.Errorf("%w: frame type %d of a new host", errFrame, t)
	}
	a.newHost = false
	err = a.handle(frames, t, n)
	silence.heard() // again, because only the first hello says how long a silence may be
	return err
}

// handle does what one frame asks for. It never blocks on the program or on the disk.
func (a *agent) handle(frames *frameReader, t frameType, n int) error {
	switch t {
	case frameWorkspace, frameStdin:
		return a.chunk(frames, t, n)
	case frameSession, frameSessionData, frameSessionEnd, frameSessionCredit:
		return a.handleCall(frames, t, n)
	default:
	}
	p, err := frames.payload(n)
	if err != nil {
		return err
	}
	if !a.ready && t != frameHello {
		return fmt.Errorf("%w: frame type %d before a hello", errFrame, t)
	}
	x := a.now()
	switch t {
	case frameHello:
		return a.hello(p)
	case framePing:
		return a.reply("")
	case frameBye:
		return errBye
	case frameStart:
		return a.begin(p)
	case frameAck:
		acked, err := parseAck(p)
		if err == nil && x != nil {
			x.box.ack(acked)
		}
		return err
	case frameCredit:
		c, add, err := parseCredit(p)
		if err == nil && c != channelArtifact {
			err = fmt.Errorf("%w: the host grants credit for channel %d", errFrame, c)
		}
		if err == nil && x != nil {
			x.artifacts.add(add)
		}
		return err
	}
	if t == frameFile {
		return a.file(x)
	}
	if x == nil {
		return nil // it was about an Execution that has been answered
	}
	switch t {
	case frameWorkspaceEnd:
		x.workspace.end(io.EOF)
	case frameStdinEnd:
		x.stdin.end(io.EOF)
	case frameCancel:
		x.cancel()
	case frameSignal:
		if len(p) < 1 {
			return fmt.Errorf("%w: a signal without a number", errFrame)
		}
		x.signal(syscall.Signal(p[0]))
	default:
		return fmt.Errorf("%w: the host sent frame type %d", errFrame, t)
	}
	return nil
}

// chunk takes a piece of the Workspace or of Stdin.
func (a *agent) chunk(frames *frameReader, t frameType, n int) error {
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	data := (*buf)[:n]
	if err := frames.into(data); err != nil {
		return err
	}
	x := a.now()
	if x == nil || n == 0 {
		chunks.Put(buf)
		return nil
	}
	if t == frameWorkspace {
		return x.workspace.put(piece{buf, data})
	}
	return x.stdin.put(piece{buf, data})
}

// file takes the descriptor that has x's Workspace. x may be nil.
func (a *agent) file(x *execution) error {
	f := a.rights.take()
	if f == nil {
		f = a.door.enter()
	}
	switch {
	case f == nil:
		return fmt.Errorf("%w: a file frame without a file", errFrame)
	case x == nil:
		return f.Close()
	}
	return x.workspace.open(f)
}

// now returns the Execution that has not been answered yet; nil without one.
func (a *agent) now() *execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.running {
		return nil
	}
	return a.current
}

func (a *agent) hello(p []byte) error {
	var h hello
	if err := json.Unmarshal(p, &h); err != nil {
		return fmt.Errorf("%w: hello: %w", errFrame, err)
	}
	if a.ready {
		return a.resume(h)
	}
	if h.Version != Version {
		return errors.Join(a.reply(""), fmt.Errorf("%w: the host speaks version %d", errFrame, h.Version))
	}
	if err := a.accept(h.Config); err != nil {
		return errors.Join(a.reply(err.Error()), err)
	}
	return a.reply("")
}

// accept checks a Config and makes what lives as long as the runner.
func (a *agent) accept(cfg Config) error {
	if st, err := os.Stat(cfg.WorkRoot); err != nil || !st.IsDir() {
		return fmt.Errorf("work_root: %q is not a folder", cfg.WorkRoot)
	}
	if cfg.UID < 0 || cfg.GID < 0 || cfg.UID != 0 && os.Geteuid() != 0 {
		return fmt.Errorf("uid: only root can run programs as %d:%d", cfg.UID, cfg.GID)
	}
	for controller, dir := range cfg.Cgroups {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return fmt.Errorf("cgroups: %s: %q is not a folder", controller, dir)
		}
	}
	if cfg.InNetworkNamespace {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if cfg.Tmpfs && !cfg.UseWorkRoot {
		var err error
		if a.disk, err = newDisk(cfg); err != nil {
			return err
		}
		cfg.WorkRoot = a.disk.root
	}
	a.cfg, a.ready = cfg, true
	if cfg.Silence > 0 {
		a.up = newUplink(a.w)
		a.out.relay = a.up
		a.in.marker = marker(a.epoch)
		a.goGuarded(a.up.run)
	}
	if cfg.Door {
		d, err := newDoor()
		if err != nil {
			return err
		}
		a.door = d
	}
	a.setDeadline(&a.lifeDeadline, cfg.Deadline)
	a.plain = newSpawner(false)
	if cfg.NetworkNamespace && !cfg.InNetworkNamespace {
		a.empty = newSpawner(true) // takes milliseconds; the first Execution waits for it, Hello does not
	}
	return nil
}

func (a *agent) reply(refusal string) error {
	return a.out.json(frameHelloReply, a.state(refusal))
}

func (a *agent) state(refusal string) helloReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := helloReply{Version: Version, Epoch: a.epoch, PID: os.Getpid(), Silence: a.cfg.Silence, Kernel: a.inside.kernel(), Error: refusal}
	if a.door != nil && a.door.inside != nil {
		r.Door = a.door.outside
	}
	if x := a.current; x != nil {
		r.ExecutionID, r.Running, r.KillGrace = x.start.ExecutionID, a.running, x.start.Limits.KillGrace
	}
	return r
}

func (a *agent) begin(p []byte) error {
	var start Start
	if err := json.Unmarshal(p, &start); err != nil {
		return fmt.Errorf("%w: start: %w", errFrame, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return fmt.Errorf("%w: a start while an Execution runs", errFrame)
	}
	before := a.current
	x := newExecution(a, start)
	if a.up != nil {
		x.sender = a.up.follow(x.box.kept)
		if before != nil {
			before.release()
		}
	}
	a.current, a.running, a.startedEvent = x, true, nil
	a.setDeadline(&a.startDeadline, start.Deadline)
	if start.Session || a.session != nil {
		a.goGuarded(func() { x.runInSession(before) })
		return nil
	}
	a.goGuarded(func() { x.run(before) })
	return nil
}

// answer sends the Result by out. From here on the host may send the next Start.
func (a *agent) answer(x *execution, out *frameWriter) {
	a.mu.Lock()
	if a.up != nil && (a.current != x || !a.up.serves(out.generation)) {
		a.mu.Unlock()
		return // another Execution has begun; or another host has come, and is to get all of it
	}
	a.running = false
	a.mu.Unlock()
	if raw, err := json.Marshal(x.res); err != nil {
		a.logf("answer: %v", err)
	} else if out == x.box.out {
		_ = x.box.last(frameExited, raw) // a broken connection shows in the reader
	} else {
		_ = out.raw(frameExited, raw) // likewise
	}
	if x.stuck {
		a.die(fmt.Errorf("the program of %s does not die", x.start.ExecutionID))
	}
}

func (a *agent) spawner(network bool) *spawner {
	if !network && a.empty != nil {
		return a.empty
	}
	return a.plain
}

func (a *agent) groupName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups++
	return "run-" + strconv.Itoa(a.groups)
}

func (a *agent) logf(format string, args ...any) {
	say(format, args...)
}
