package cmd

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
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

// withSignals returns a context that the first SIGINT, SIGTERM or SIGHUP ends. SIGINT then finds the system's own
// behaviour again, so that nobody has to wait for our clean-up. The others are dropped: timeout(1), a terminal that is closed
// and a service manager send one stop as two signals, and the second one must not keep us from killing what we started.
//
// SIGPIPE is caught and dropped, so that a write to a closed standard output is an error that we can clean up after.
// Ignoring it would do that too, but children inherit what is ignored.
func withSignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	taker := &interruptTaker{}
	ctx = context.WithValue(ctx, takerKey{}, taker)
	signals := make(chan os.Signal, 1)
	pipe := make(chan os.Signal, 1)
	signalled := heeded()
	signal.Notify(signals, signalled...)
	notifyPipe(pipe)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for first := true; ; {
			select {
			case s := <-signals:
				if s == os.Interrupt && taker.offer() || !first {
					continue
				}
				first = false
				if slices.Contains(signalled, os.Interrupt) {
					signal.Reset(os.Interrupt)
				}
				number, _ := s.(syscall.Signal)
				cancel(interrupted{number})
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
		cancel(nil)
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
