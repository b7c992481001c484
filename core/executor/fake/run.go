package fake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// run is one job, with its preparation, its program and the program's descendants.
type run struct {
	backend *Backend
	job     executor.Job
	feed    *feed
	ended   chan struct{}
	result  executor.Result // valid after ended
	tree    *tree
	// session is the Session that the job runs in; nil: none.
	session *session

	// killed ends at SIGKILL, which goes to the program and its descendants. term ends at SIGKILL or at SIGTERM.
	killed    context.Context
	killAll   context.CancelCauseFunc
	term      context.Context
	terminate context.CancelCauseFunc
	children  sync.WaitGroup

	writing sync.Mutex // guards bytes and earlier; held while a write blocks
	earlier bool       // output is marked as earlier
	bytes   map[executor.Stream]int64

	mu      sync.Mutex
	started time.Time
	reason  executor.Status // the first limit that fired
	clock   string          // the field of the clock that did, if one has
	grace   *time.Timer
	memory  int64
	peak    int64
	cpu     time.Duration
	samples []executor.MemorySample
	failed  error // what a backend-… directive makes Run return
	oom     bool
	full    bool // a write found no room
	// displays is the number of Displays so far.
	displays int
}

var errKilled = errors.New("killed")

func newRun(b *Backend, job executor.Job) *run {
	killed, killAll := context.WithCancelCause(context.Background())
	term, terminate := context.WithCancelCause(killed)
	return &run{
		backend:   b,
		job:       job,
		feed:      newFeed(),
		ended:     make(chan struct{}),
		killed:    killed,
		killAll:   killAll,
		term:      term,
		terminate: terminate,
		bytes:     map[executor.Stream]int64{},
		memory:    baseMemory,
		peak:      baseMemory,
	}
}

// baseMemory is the memory of a program before its first allocation.
const baseMemory = 8 << 20

func (r *run) handle() string { return "fake:" + r.job.ID }

// timeOut is stop for a clock.
func (r *run) timeOut(field string) {
	r.mu.Lock()
	if r.reason == "" {
		r.clock = field
	}
	r.mu.Unlock()
	r.stop(executor.StatusTimedOut)
}

// stop ends the program for that reason. It sends SIGTERM, and after the grace SIGKILL to the program and its descendants.
// Before the program has started, SIGKILL comes at once. Only the first reason is kept.
func (r *run) stop(reason executor.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason != "" {
		return
	}
	r.reason = reason
	if r.started.IsZero() {
		r.killAll(errKilled)
		return
	}
	if r.job.Limits.KillGrace <= 0 { // no time at all: SIGKILL comes first, always
		r.killAll(errKilled)
		return
	}
	r.terminate(errKilled)
	r.grace = time.AfterFunc(r.job.Limits.KillGrace, func() { r.killAll(errKilled) })
}

// interrupted reports whether the program was told to stop by SIGINT.
func (r *run) interrupted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.job.Spec.InterruptOnCancel && r.reason == executor.StatusKilled
}

// kill sends SIGKILL to the program and its descendants, for Remove.
func (r *run) kill() {
	r.stop(executor.StatusKilled)
	r.killAll(errKilled)
}

// live runs the job from its preparation to its Result. It owns all goroutines of the job.
func (r *run) live() {
	defer close(r.ended)
	if r.session != nil {
		defer r.session.leave(r)
	}
	defer r.feed.end()
	defer r.killAll(errKilled)
	begin := time.Now()
	p, failure := r.ready()
	r.result.Phases.Prepare = time.Since(begin)
	r.result.CPU = 0
	switch {
	case r.killed.Err() != nil:
		r.result.Status = executor.StatusKilled
		return
	case failure != nil && r.session != nil && r.session.isDead():
		r.result.Status, r.result.Failure, r.result.SessionState = executor.StatusFailed, failure, executor.SessionStateLost
		return
	case r.failed != nil:
		return
	case failure != nil:
		r.result.Status, r.result.Failure = executor.StatusFailed, failure
		return
	}
	if r.session != nil {
		r.session.see(r)
	}
	if !r.begin(p) {
		r.result.Status = executor.StatusKilled
		return
	}
	timeout := time.AfterFunc(r.job.Limits.Timeout, func() { r.timeOut(executor.FieldTimeout) })
	sampling := r.sample()
	end := p.main()
	timeout.Stop()
	sampling()
	p.stdin.close()
	r.finish(end)
	if r.session != nil {
		r.session.tell(r)
	}
}

// begin records the start of the program, unless the job was stopped before.
func (r *run) begin(p *process) bool {
	w := r.backend.world
	started := executor.Started{
		PID:           int(w.pids.Add(1)),
		PythonVersion: p.python,
		Requirements:  p.requirements,
		Start:         executor.StartExec,
	}
	if r.backend.caps.Attach {
		started.Handle = []byte(r.handle())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason != "" || r.killed.Err() != nil {
		return false
	}
	r.started = time.Now()
	r.result.PythonVersion, r.result.Requirements = p.python, p.requirements
	if !r.feed.put(r.killed.Done(), started) {
		return false
	}
	if r.session != nil {
		r.session.open(r)
	}
	return true
}

// end is the end of a program, by an exit code or by a signal.
type end struct {
	code   int
	signal string
}

// finish makes the Result from the program's end, and kills the program's descendants.
func (r *run) finish(e end) {
	state := executor.SessionStateKept
	if r.session != nil {
		state = r.session.settle(r, e)
	}
	r.killAll(errKilled)
	r.children.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing.Lock() // what a session has left running may be writing still
	defer r.writing.Unlock()
	if r.grace != nil {
		r.grace.Stop()
	}
	res := &r.result
	res.Wall = time.Since(r.started)
	res.Phases.Run = res.Wall
	res.CPU = r.cpu
	res.PeakMemoryBytes, res.PeakResidentBytes = r.peak, r.peak
	res.SessionState = state
	if e.signal != "" {
		res.Signal = e.signal
	} else {
		res.ExitCode = &e.code
	}
	switch {
	case r.oom:
		res.Status = executor.StatusOutOfMemory
	case r.reason != "":
		res.Status = r.reason
	case e.signal == "" && e.code == 0:
		res.Status = executor.StatusSucceeded
	default:
		res.Status = executor.StatusFailed
	}
	switch {
	case res.Status == executor.StatusTimedOut:
		res.Failure = res.TimedOut(r.clock, r.job.Limits)
	case r.oom:
		res.Failure = limitHit("config.memory_mb", r.limits().MemoryBytes)
	case r.full && res.Status == executor.StatusFailed:
		res.Failure = limitHit("config.disk_mb", r.limits().DiskBytes)
	}
	// A stop from now on has no effect.
	r.reason = res.Status
	limit := r.job.Limits.OutputBytes
	res.StdoutBytes, res.StdoutTruncated = r.bytes[executor.Stdout], over(r.bytes[executor.Stdout], limit)
	res.StderrBytes, res.StderrTruncated = r.bytes[executor.Stderr], over(r.bytes[executor.Stderr], limit)
}

func over(n, limit int64) bool { return limit >= 0 && n > limit }

// write is write(2) of a program. It blocks while the reader is behind. It counts the bytes beyond the cap, but drops them. It
// returns when done is closed.
func (r *run) write(done <-chan struct{}, stream executor.Stream, data []byte) bool {
	for len(data) > 0 {
		piece := data[:min(len(data), executor.MaxOutputData)]
		data = data[len(piece):]
		r.writing.Lock()
		ok := r.writePiece(done, stream, piece)
		r.writing.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// writePiece puts a piece of output into the feed. The caller holds writing, so that offsets enter the feed in order.
func (r *run) writePiece(done <-chan struct{}, stream executor.Stream, piece []byte) bool {
	select {
	case <-done:
		return false
	default:
	}
	offset, keep := r.bytes[stream], len(piece)
	if limit := r.job.Limits.OutputBytes; limit >= 0 {
		keep = int(min(int64(keep), max(limit-offset, 0)))
	}
	if keep > 0 {
		body := executor.Output{Stream: stream, Offset: offset, Data: bytes.Clone(piece[:keep]), Earlier: r.earlier}
		if !r.feed.put(done, body) {
			return false
		}
	}
	r.bytes[stream] += int64(len(piece))
	return true
}

// limits returns the Limits of r: those of its Session, else those of its job.
func (r *run) limits() executor.Limits {
	if r.session != nil {
		return r.session.limits
	}
	return r.job.Limits
}

// limitHit returns the Failure of a program that has reached a limit.
func limitHit(field string, limit int64) *executor.Failure {
	f := failure(executor.PhaseRun, executor.Exhausted, "%s: the program needed more than %d MB", field, limit>>20)
	f.Field = field
	return f
}

// noRoom records that a write has failed because the disk limit was reached.
func (r *run) noRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
}

// allocate adds to the program's memory. Beyond an enforced limit it kills the program and its descendants.
func (r *run) allocate(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory += n
	if limit := r.limits().MemoryBytes; r.backend.caps.Memory && limit > 0 && r.memory > limit {
		r.oom = true
		r.peak = limit
		r.killAll(errKilled)
		return errKilled
	}
	r.peak = max(r.peak, r.memory)
	return nil
}

// sample records the memory curve until the returned function is called.
func (r *run) sample() (stop func()) {
	interval := r.job.Spec.SampleInterval
	if interval <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			r.mu.Lock()
			r.samples = append(r.samples, executor.MemorySample{Offset: time.Since(r.started), Bytes: r.memory})
			r.mu.Unlock()
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		r.result.MemorySamples = r.samples
	}
}

// stdin is the standard input of a program. A goroutine reads one piece ahead.
type stdin struct {
	pieces chan []byte
	close  func()
	rest   []byte
}

// openStdin starts to read source. nil is an empty source.
func (r *run) openStdin(source *executor.Source) (*stdin, error) {
	s := &stdin{pieces: make(chan []byte), close: func() {}}
	if source == nil {
		close(s.pieces)
		return s, nil
	}
	reader, err := source.Open()
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	s.close = sync.OnceFunc(func() {
		close(done)
		_ = reader.Close() // it was only read
	})
	r.children.Go(func() {
		defer close(s.pieces)
		buf := make([]byte, 64<<10)
		for {
			n, err := reader.Read(buf)
			if n > 0 {
				select {
				case s.pieces <- bytes.Clone(buf[:n]):
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	return s, nil
}

// read returns the next piece, or io.EOF at the end.
func (s *stdin) read(p *process) ([]byte, error) {
	if len(s.rest) > 0 {
		piece := s.rest
		s.rest = nil
		return piece, nil
	}
	select {
	case piece, ok := <-s.pieces:
		if !ok {
			return nil, io.EOF
		}
		return piece, nil
	case <-p.stopped():
		return nil, p.death()
	}
}
