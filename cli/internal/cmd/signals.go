package cmd

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/cli/internal/stop"
)

// interrupted is the cause of a context that was ended by a signal.
type interrupted struct{ signal syscall.Signal }

// Error implements error.
func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

func (i interrupted) status() int { return 128 + int(i.signal) }

// heeded returns the signals that stop a command, except those that the parent (nohup, a shell) has set to be ignored.
// signal.Notify for such a signal would undo that.
func heeded() []os.Signal {
	list := []os.Signal{syscall.SIGTERM}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// echo is the time after a signal in which further signals count as the same request. timeout(1) sends each signal twice. A
// service manager and a closing terminal also send SIGHUP.
const echo = 100 * time.Millisecond

// withSignals returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. The command then stops in order. A second
// SIGINT or SIGTERM ends the time for that (package stop). A third one has its default action and ends the process.
//
// SIGPIPE is caught and dropped, so that a write to a closed standard output returns an error. An ignored SIGPIPE would have
// the same effect, but child processes would inherit it.
//
// The signals are caught until the process exits, so that one that arrives last does not change the exit status.
func withSignals(parent context.Context) context.Context {
	ctx, requests := stop.New(parent)
	taker := &signalTaker{}
	ctx = context.WithValue(ctx, takerKey{}, taker)
	h := &signalHandler{requests: requests, taker: taker, heeded: heeded()}
	signals := make(chan os.Signal, 4)
	pipe := make(chan os.Signal, 1)
	signal.Notify(signals, h.heeded...)
	notifyPipe(pipe)
	go func() {
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok {
					h.take(number)
				}
			case <-h.echoEnds:
				h.listen()
			case <-pipe:
			}
		}
	}()
	return ctx
}

// signalHandler turns signals into requests to stop.
type signalHandler struct {
	requests *stop.Requests
	taker    *signalTaker
	heeded   []os.Signal

	// first is the signal that began the stop. urged reports whether a second one was taken.
	first syscall.Signal
	urged bool
	// echoEnds fires at the end of the echo of the last signal that was taken.
	echoEnds  <-chan time.Time
	listening bool
}

// take handles one signal.
func (h *signalHandler) take(s syscall.Signal) {
	switch {
	case h.taker.offer(s):
	case h.first == 0:
		h.first = s
		h.requests.First(interrupted{s})
		h.echoEnds = time.After(echo)
	case h.urged || s == syscall.SIGHUP:
	case h.listening, s != h.first && h.first != syscall.SIGHUP:
		h.urged = true
		h.requests.Again(interrupted{s})
		h.echoEnds = time.After(echo)
	}
}

// listen handles the end of an echo. After a second signal it restores the default action of SIGINT and SIGTERM.
func (h *signalHandler) listen() {
	h.listening = true
	h.requests.Listen()
	if !h.urged {
		return
	}
	for _, s := range h.heeded {
		if s != os.Signal(syscall.SIGHUP) {
			signal.Reset(s)
		}
	}
}

type takerKey struct{}

// signalTaker passes Ctrl-C and SIGHUP to receivers other than the end of the command.
type signalTaker struct {
	mu        sync.Mutex
	receivers map[syscall.Signal]*receiver
}

// takeInterrupts sends a value for each Ctrl-C to the channel, until release. Until then, Ctrl-C does not end ctx. A Ctrl-C is
// dropped while a value is waiting in the channel.
func takeInterrupts(ctx context.Context) (interrupts <-chan struct{}, release func()) {
	return take(ctx, syscall.SIGINT, nil)
}

// takeHangups is takeInterrupts for SIGHUP. The SIGHUP of a terminal that closes still ends ctx.
func takeHangups(ctx context.Context) (hangups <-chan struct{}, release func()) {
	if !hasTerminal() {
		return take(ctx, syscall.SIGHUP, nil)
	}
	return take(ctx, syscall.SIGHUP, func() bool { return !hasTerminal() })
}

func take(ctx context.Context, s syscall.Signal, refused func() bool) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	taker, ok := ctx.Value(takerKey{}).(*signalTaker)
	if !ok {
		return c, func() {}
	}
	taker.set(s, &receiver{c, refused})
	return c, func() { taker.set(s, nil) }
}

// receiver gets a signal, unless refused, which may be nil, reports that the signal means the end of the command.
type receiver struct {
	to      chan<- struct{}
	refused func() bool
}

func (t *signalTaker) set(s syscall.Signal, r *receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.receivers == nil {
		t.receivers = map[syscall.Signal]*receiver{}
	}
	t.receivers[s] = r
}

// offer passes a signal to its receiver, and reports whether there is one.
func (t *signalTaker) offer(s syscall.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.receivers[s]
	if r == nil || r.refused != nil && r.refused() {
		return false
	}
	select {
	case r.to <- struct{}{}:
	default:
	}
	return true
}
