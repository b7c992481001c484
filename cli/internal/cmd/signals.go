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

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

// Error implements error.
func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

func (i interrupted) status() int { return 128 + int(i.signal) }

// heeded are the signals that end us, but for those that nohup or a shell has us ignore: to be notified of one is to heed
// it again.
func heeded() []os.Signal {
	list := []os.Signal{syscall.SIGTERM}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// echo is how long after the first signal more signals belong to it: timeout(1) sends each one twice, a service manager and a
// closing terminal send a SIGHUP besides.
const echo = 100 * time.Millisecond

// withSignals returns a context that the first SIGINT, SIGTERM or SIGHUP ends: the command stops in order. A second SIGINT or
// SIGTERM takes away the time for that (package stop). A third one ends the process as the system does.
//
// SIGPIPE is caught and dropped, so that a write to a closed standard output is an error that we can clean up after.
// Ignoring it would do that too, but children inherit what is ignored.
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

	// first is the signal that began the stop; urged: a second one was taken.
	first syscall.Signal
	urged bool
	// echoEnds fires when more signals no longer belong to the last one that was taken.
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

// listen is called when an echo has ended.
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

// interruptTaker is who takes Ctrl-C for something else than the end of the command.
type interruptTaker struct {
	mu sync.Mutex
	to chan<- struct{}
}

// takeInterrupts makes Ctrl-C a value on the channel, until release, instead of the end of ctx. More of them than are
// received at a time count as one.
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

// offer hands one over, if somebody takes them.
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
