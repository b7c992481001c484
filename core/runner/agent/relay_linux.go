package agent

import (
	"errors"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// relay sends to hosts that attach and vanish, on a stream whose writes may block for ever or be lost. So only its own goroutine
// writes, and no write counts as delivered. A host that resumes gets everything again from the offsets that it names.
type relay struct {
	w io.Writer

	mu   sync.Mutex
	cond *sync.Cond
	// generation changes with every host, and with every Execution.
	generation uint64
	// hosts counts the hosts that have resumed.
	hosts uint64
	// follows reports whether the host follows the current Execution.
	follows bool
	// first are frames in their order. Of reply only the last counts, of credits the sum.
	first   queue
	reply   []byte
	credits [protocol.ChannelArtifact + 1]int
	// box is sent after first. last is sent after box: the Artifacts and the Result.
	box  *output.Backlog
	last queue
	// exited reports that the Exited of this generation was queued. No Credit may follow it.
	exited bool
	err    error // why nothing can be sent any more
}

// queue holds frames to send.
type queue struct {
	frames [][]byte
	bytes  int
}

func (q *queue) add(frame []byte) {
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
}

// full reports whether frame has to wait.
func (q *queue) full(frame []byte) bool { return q.bytes > 0 && q.bytes+len(frame) > queueBytes }

func (q *queue) take() []byte {
	f := q.frames[0]
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.bytes -= len(f)
	return f
}

// queueBytes bounds a queue. One frame always fits.
const queueBytes = 1 << 20

// batchBytes is about how much is sent in one write.
const batchBytes = 32 << 10

// errResumed means that another host has taken over. What was meant for the host before is void.
var errResumed = errors.New("another host has taken over")

func newRelay(w io.Writer) *relay {
	r := &relay{w: w, follows: true}
	r.cond = sync.NewCond(&r.mu)
	return r
}

// writer returns a Writer for the present host. Its frames fail with errResumed when another one comes.
func (r *relay) writer() *protocol.Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return protocol.NewRelayWriter(r, r.generation)
}

// serves reports whether the host of that generation is the present one.
func (r *relay) serves(generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation == generation
}

// run writes until a write fails.
func (r *relay) run() {
	batch := make([]byte, 0, batchBytes+protocol.HeaderBytes+protocol.OutputHeaderBytes+output.PumpBytes)
	for {
		r.mu.Lock()
		batch = r.collect(batch[:0])
		for len(batch) == 0 && r.err == nil {
			r.cond.Wait()
			batch = r.collect(batch[:0])
		}
		err := r.err
		r.mu.Unlock()
		if err == nil {
			_, err = r.w.Write(batch)
		}
		if err != nil {
			r.stop(err)
			return
		}
		if cap(batch) > 4*batchBytes {
			batch = nil // an artifact's; the next one will bring its own
		}
	}
}

// collect appends frames to batch until there are enough for one write.
func (r *relay) collect(batch []byte) []byte {
	for len(batch) < batchBytes {
		switch {
		case len(r.first.frames) > 0:
			batch = append(batch, r.first.take()...)
			r.cond.Broadcast()
		case r.reply != nil:
			batch = append(batch, r.reply...)
			r.reply = nil
		case r.hasCredit():
			batch = r.takeCredits(batch)
		case r.follows && r.box != nil && r.box.Unsent():
			batch = r.box.Next(batch)
		case r.follows && len(r.last.frames) > 0:
			batch = append(batch, r.last.take()...)
			r.cond.Broadcast()
		default:
			return batch
		}
	}
	return batch
}

func (r *relay) hasCredit() bool {
	for _, n := range r.credits {
		if n > 0 {
			return true
		}
	}
	return false
}

func (r *relay) takeCredits(batch []byte) []byte {
	for c, n := range r.credits {
		if n > 0 {
			batch = protocol.AppendFrame(batch, protocol.FrameCredit, protocol.CreditPayload(protocol.Channel(c), n)) //nolint:gosec // a channel
			r.credits[c] = 0
		}
	}
	return batch
}

// Send implements protocol.Relay. It waits while too much is queued, but never with the frames that the reader of frames sends.
func (r *relay) Send(generation uint64, t protocol.FrameType, frame []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &r.first
	switch t {
	case protocol.FrameHelloReply:
		r.reply = frame
		r.cond.Broadcast()
		return r.err
	case protocol.FrameCredit:
		c, n, err := protocol.ParseCredit(frame[protocol.HeaderBytes:])
		if err == nil && r.generation == generation && !r.exited { // else the sender of the input is gone, or has its Result
			r.credits[c] += int(n)
			r.cond.Broadcast()
		}
		return errors.Join(err, r.err)
	case protocol.FrameLost:
		q.add(frame)
		r.cond.Broadcast()
		return r.err
	case protocol.FrameProgress:
		if !r.follows || q.bytes > queueBytes {
			return r.err // the next one says more
		}
	case protocol.FrameStarted:
		if !r.follows || r.generation != generation {
			return r.err // a host that resumes gets it with the introduction
		}
	case protocol.FrameSessionReply, protocol.FrameSessionFile, protocol.FrameSessionCredit:
		for r.err == nil && r.hosts == generation && q.full(frame) {
			r.cond.Wait()
		}
		if r.err == nil && r.hosts != generation {
			return errResumed // another host has asked
		}
		if r.err == nil {
			q.add(frame)
			r.cond.Broadcast()
		}
		return r.err
	case protocol.FrameArtifact, protocol.FrameArtifactData, protocol.FrameArtifactEnd, protocol.FrameExited:
		q = &r.last
	default:
	}
	waits := t != protocol.FrameExited && t != protocol.FrameStarted
	current := func() bool { return q != &r.last || r.generation == generation }
	for waits && r.err == nil && current() && q.full(frame) {
		r.cond.Wait()
	}
	if r.err != nil {
		return r.err
	}
	if !current() {
		return errResumed
	}
	q.add(frame)
	r.exited = r.exited || t == protocol.FrameExited
	r.cond.Broadcast()
	return nil
}

// wake tells the relay that a Backlog has something to send.
func (r *relay) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cond.Broadcast()
}

// follow makes box the output that is sent. It returns a Writer for the present host, which works as long as the relay follows
// box.
func (r *relay) follow(box *output.Backlog) *protocol.Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.void()
	r.box = box
	r.follows = true
	return protocol.NewRelayWriter(r, r.generation)
}

// pause stops sending anything of the Execution until follow or resume.
func (r *relay) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follows = false
}

// resume turns to another host. It sends intro first, then box from its beginning. The host follows nothing if box is nil.
func (r *relay) resume(intro []byte, box *output.Backlog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.void()
	r.hosts++
	r.first, r.reply = queue{}, nil
	r.first.add(intro)
	r.box, r.follows = box, box != nil
	r.cond.Broadcast()
}

// renew drops what is queued of the current Execution for the present host.
func (r *relay) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.void()
}

func (r *relay) void() {
	r.generation++
	r.last, r.exited, r.credits = queue{}, false, [protocol.ChannelArtifact + 1]int{}
	r.cond.Broadcast()
}

// stop makes the relay fail with err.
func (r *relay) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.cond.Broadcast()
}

var _ protocol.Relay = (*relay)(nil)

// hostWriter returns a Writer for answers to the present host's requests. They are for no other host.
func (r *relay) hostWriter() *protocol.Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return protocol.NewRelayWriter(r, r.hosts)
}
