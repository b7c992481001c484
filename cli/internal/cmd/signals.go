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
func withSignals(parent context.Context) (context.Context, func()) {
	ctx, requests := stop.New(parent)
	taker := &interruptTaker{}
	ctx = context.WithValue(ctx, takerKey{}, taker)
	h := &signalHandler{requests: requests, taker: taker, heeded: heeded()}
	signals := make(chan os.Signal, 4)
	pipe := make(chan os.Signal, 1)
	signal.Notify(signals, h.heeded...)
	notifyPipe(pipe)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok {
					h.take(number)
				}
			case <-h.echoEnds:
				h.listen()
			case <-pipe:
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		signal.Stop(pipe)
		close(done)
		<-finished
		requests.First(nil)
	}
}

// signalHandler turns signals into requests to stop.
type signalHandler struct {
	requests *stop.Requests
	taker    *interruptTaker
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
	case s == syscall.SIGINT && h.taker.offer():
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

// interruptTaker passes Ctrl-C to a receiver other than the end of the command.
type interruptTaker struct {
	mu sync.Mutex
	to chan<- struct{}
}

// takeInterrupts sends a value for each Ctrl-C to the channel, until release. Until then, Ctrl-C does not end ctx. A Ctrl-C is
// dropped while a value is waiting in the channel.
func takeInterrupts(ctx context.Context) (interrupts <-chan struct{}, release func()) {
	c := make(chan struct{}, 1)
	taker, ok := ctx.Value(takerKey{}).(*interruptTaker)
	if !ok {
		return c, func() {}
	}
	set := func(to chan<- struct{}) {
		taker.mu.Lock()
		defer taker.mu.Unlock()
		taker.to = to
	}
	set(c)
	return c, func() { set(nil) }
}

// offer passes a Ctrl-C to the receiver, and reports whether there is one.
func (t *interruptTaker) offer() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to == nil {
		return false
	}
	select {
	case t.to <- struct{}{}:
	default:
	}
	return true
}
