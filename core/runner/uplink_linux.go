package runner

import (
	"errors"
	"io"
	"sync"
)

// uplink is the way to a host that may go away and come back, on a stream that does not tell: a write may block for ever,
// or be swallowed. So nobody but its own goroutine writes, and nothing depends on what was written: a host that comes gets
// everything again from the state that it names.
type uplink struct {
	w io.Writer

	mu   sync.Mutex
	cond *sync.Cond
	// generation counts the hosts.
	generation uint64
	// hosts counts those that came back.
	hosts uint64
	// follows: the host wants to hear of the Execution at hand.
	follows bool
	// first are frames in their order; reply and credits, of which only the last, or the sum, counts.
	first   queue
	reply   []byte
	credits [channelArtifact + 1]int
	// box is sent after first, last after box: the Artifacts and the Result.
	box  *kept
	last queue
	// exited: the Exited of this generation was queued. No credit may follow it.
	exited bool
	err    error // why nothing can be sent any more
}

// queue is frames to send.
type queue struct {
	frames [][]byte
	bytes  int
}

func (q *queue) add(frame []byte) {
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
}

func (q *queue) take() []byte {
	f := q.frames[0]
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.bytes -= len(f)
	return f
}

// queueBytes bounds a queue; one frame is always taken.
const queueBytes = 1 << 20

// batchBytes is how much is collected for one write.
const batchBytes = 32 << 10

// errResumed: another host is there. What was meant for the one before is void.
var errResumed = errors.New("another host is there")

func newUplink(w io.Writer) *uplink {
	u := &uplink{w: w, follows: true}
	u.cond = sync.NewCond(&u.mu)
	return u
}

// writer returns a frameWriter for the present host. Its frames fail with errResumed when another one comes.
func (u *uplink) writer() *frameWriter {
	u.mu.Lock()
	defer u.mu.Unlock()
	return &frameWriter{relay: u, generation: u.generation}
}

// serves reports whether the host of that generation is still the present one.
func (u *uplink) serves(generation uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.generation == generation
}

// run writes, until that fails.
func (u *uplink) run() {
	batch := make([]byte, 0, batchBytes+frameHeader+outputHeader+pumpBytes)
	for {
		u.mu.Lock()
		batch = u.collect(batch[:0])
		for len(batch) == 0 && u.err == nil {
			u.cond.Wait()
			batch = u.collect(batch[:0])
		}
		err := u.err
		u.mu.Unlock()
		if err == nil {
			_, err = u.w.Write(batch)
		}
		if err != nil {
			u.stop(err)
			return
		}
		if cap(batch) > 4*batchBytes {
			batch = nil // an artifact's; the next one will bring its own
		}
	}
}

// collect appends frames to batch until it is enough for one write.
func (u *uplink) collect(batch []byte) []byte {
	for len(batch) < batchBytes {
		switch {
		case len(u.first.frames) > 0:
			batch = append(batch, u.first.take()...)
			u.cond.Broadcast()
		case u.reply != nil:
			batch = append(batch, u.reply...)
			u.reply = nil
		case u.hasCredit():
			batch = u.takeCredits(batch)
		case u.follows && u.box != nil && u.box.unsent():
			batch = u.box.next(batch)
		case u.follows && len(u.last.frames) > 0:
			batch = append(batch, u.last.take()...)
			u.cond.Broadcast()
		default:
			return batch
		}
	}
	return batch
}

func (u *uplink) hasCredit() bool {
	for _, n := range u.credits {
		if n > 0 {
			return true
		}
	}
	return false
}

func (u *uplink) takeCredits(batch []byte) []byte {
	for c, n := range u.credits {
		if n > 0 {
			p := creditPayload(channel(c), n) //nolint:gosec // a channel
			batch = append(batch, make([]byte, frameHeader)...)
			putHeader(batch[len(batch)-frameHeader:], frameCredit, len(p))
			batch = append(batch, p...)
			u.credits[c] = 0
		}
	}
	return batch
}

// send takes a whole frame, which is u's from now on. It waits while too much is waiting already, but never with what the
// reader of frames sends.
func (u *uplink) send(generation uint64, t frameType, frame []byte) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	q := &u.first
	switch t {
	case frameHelloReply:
		u.reply = frame
		u.cond.Broadcast()
		return u.err
	case frameCredit:
		c, n, err := parseCredit(frame[frameHeader:])
		if err == nil && u.generation == generation && !u.exited { // else whoever sent the input is gone, or done with it
			u.credits[c] += int(n)
			u.cond.Broadcast()
		}
		return errors.Join(err, u.err)
	case frameLost:
		q.add(frame)
		u.cond.Broadcast()
		return u.err
	case frameProgress:
		if !u.follows || q.bytes > queueBytes {
			return u.err // the next one says more
		}
	case frameStarted:
		if !u.follows || u.generation != generation {
			return u.err // who resumes gets it
		}
	case frameSessionReply, frameSessionFile, frameSessionCredit:
		for u.err == nil && u.hosts == generation && q.bytes > 0 && q.bytes+len(frame) > queueBytes {
			u.cond.Wait()
		}
		if u.err == nil && u.hosts != generation {
			return errResumed // nobody asked
		}
		if u.err == nil {
			q.add(frame)
			u.cond.Broadcast()
		}
		return u.err
	case frameArtifact, frameArtifactData, frameArtifactEnd, frameExited:
		q = &u.last
	default:
	}
	for u.err == nil && (q != &u.last || u.generation == generation) && q.bytes > 0 && q.bytes+len(frame) > queueBytes && t != frameExited && t != frameStarted {
		u.cond.Wait()
	}
	if u.err != nil {
		return u.err
	}
	if q == &u.last && u.generation != generation {
		return errResumed
	}
	q.add(frame)
	u.exited = u.exited || t == frameExited
	u.cond.Broadcast()
	return nil
}

// wake tells that a kept has something to send.
func (u *uplink) wake() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cond.Broadcast()
}

// follow makes box's the output that is sent, and returns the writer for the present host as long as it follows box.
func (u *uplink) follow(box *kept) *frameWriter {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.void()
	u.box = box
	u.follows = true
	return &frameWriter{relay: u, generation: u.generation}
}

// pause sends nothing of the Execution until follow or resume.
func (u *uplink) pause() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.follows = false
}

// resume turns to another host: intro first, then what box has, from its beginning. A nil box: the host follows nothing.
func (u *uplink) resume(intro []byte, box *kept) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.void()
	u.hosts++
	u.first, u.reply = queue{}, nil
	u.first.add(intro)
	u.box, u.follows = box, box != nil
	u.cond.Broadcast()
}

// renew voids what is meant for the present host about the Execution at hand.
func (u *uplink) renew() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.void()
}

func (u *uplink) void() {
	u.generation++
	u.last, u.exited, u.credits = queue{}, false, [channelArtifact + 1]int{}
	u.cond.Broadcast()
}

// stop ends everything with err.
func (u *uplink) stop(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
	u.cond.Broadcast()
}

var _ relay = (*uplink)(nil)

// hostWriter returns what a call of the host that is there is answered with: frames of it are for no other.
func (u *uplink) hostWriter() *frameWriter {
	u.mu.Lock()
	defer u.mu.Unlock()
	return &frameWriter{relay: u, generation: u.hosts}
}
