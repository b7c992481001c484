package awaittest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Bound is how long a wait lasts before its test fails.
const Bound = 10 * time.Minute

// Forever is for limits of the product that must not come in a test.
const Forever = 24 * time.Hour

// T is the part of testing.TB that this package needs. A case of a shared suite has it, too. A T may have the method
// Bound() time.Duration, which takes the place of Bound: a test of a suite makes the suite wait in vain.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

func boundOf(t any) time.Duration {
	if b, ok := t.(interface{ Bound() time.Duration }); ok {
		return b.Bound()
	}
	return Bound
}

// Until waits until cond returns true. It calls cond in this goroutine, at once and then every 1 to 50 ms. It is for
// conditions that have no event to wait for. what completes the sentence "… did not happen".
func Until(t T, what string, cond func() bool) {
	t.Helper()
	UntilNil(t, what, func() error {
		if cond() {
			return nil
		}
		return errNotYet
	})
}

// UntilNil waits until try returns nil, like Until. The failure shows the last error of try.
func UntilNil(t T, what string, try func() error) {
	t.Helper()
	bound := boundOf(t)
	for begin := time.Now(); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Since(begin) > bound {
			t.Fatalf("%s did not happen within %s: %v\n%s", what, bound, err, evidence())
		}
		pauseSince(begin)
	}
}

// pauseSince sleeps before the next look: an eighth of what the wait has lasted, because a look at a daemon or at all processes costs
// a processor tens of milliseconds.
func pauseSince(begin time.Time) {
	time.Sleep(min(max(time.Since(begin)/8, time.Millisecond), time.Second))
}

type notYet struct{}

func (notYet) Error() string { return "the condition is still false" }

var errNotYet error = notYet{}

// Recv waits for a value of c and returns it. A closed c fails the test.
func Recv[V any](t T, what string, c <-chan V) V {
	t.Helper()
	v, ok := recv(t, what, c)
	if !ok {
		t.Fatalf("%s did not happen: the channel was closed", what)
	}
	return v
}

// Closed waits until c is closed or has a value, as the channel of a Context, of a process's end, or of a done goroutine.
func Closed[V any](t T, what string, c <-chan V) {
	t.Helper()
	_, _ = recv(t, what, c)
}

func recv[V any](t T, what string, c <-chan V) (V, bool) {
	t.Helper()
	bound := boundOf(t)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case v, ok := <-c:
		return v, ok
	case <-timer.C:
		t.Fatalf("%s did not happen within %s\n%s", what, bound, evidence())
		panic("unreachable")
	}
}

// Never fails the test if cond is true at the start, while until runs, or at its end. until returns when an event shows that what
// must not happen would have happened by now: a test cannot wait for nothing. cond is called in this goroutine.
func Never(t T, what string, cond func() bool, until func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		until()
	}()
	for pause := time.Millisecond; ; pause = min(pause*3/2, 50*time.Millisecond) {
		over := false
		select {
		case <-done:
			over = true
		default:
		}
		if cond() {
			<-done
			t.Fatalf("%s happened", what)
		}
		if over {
			return
		}
		select {
		case <-done:
		case <-time.After(pause):
		}
	}
}

// None waits until list returns nothing, and returns nil. After Bound it returns what is left, for a suite that says itself what is wrong.
func None[V any](list func() []V) []V {
	for begin := time.Now(); ; pauseSince(begin) {
		if left := list(); len(left) == 0 || time.Since(begin) > Bound {
			return left
		}
	}
}

// Blocked reports whether a goroutine waits for a sync.Mutex and has all of these in its stack: parts of names of functions, also of
// the one that created it. Until waits for it.
func Blocked(frames ...string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		missing := func(frame string) bool { return !strings.Contains(stack, frame) }
		if strings.Contains(stack, "[sync.Mutex.Lock") && !slices.ContainsFunc(frames, missing) {
			return true
		}
	}
	return false
}

// Settled waits until value has not grown for a while, and returns its highest value. It is for what grows or, negated, falls for a
// short time without an event at the end, such as the memory or the number of goroutines. value is called in this goroutine.
func Settled(t T, what string, value func() int64) int64 {
	t.Helper()
	const looks, pause = 5, 20 * time.Millisecond
	highest, still, bound := value(), 0, boundOf(t)
	for begin := time.Now(); still < looks; {
		if time.Since(begin) > bound {
			t.Fatalf("%s still grows after %s: %d\n%s", what, bound, highest, evidence())
		}
		time.Sleep(pause)
		if v := value(); v > highest {
			highest, still = v, 0
		} else {
			still++
		}
	}
	return highest
}

// Ladder runs a program with a limit that nobody can tell to come, and returns the first run that has shown something. first is the
// first limit; each further run has a limit five times as long. run reports whether its limit came where it was to come, for
// instance after the program was up. A Ladder that does not get there within Bound fails the test: a limit that never came where
// it was to come has shown nothing.
func Ladder[R any](t T, first time.Duration, run func(limit time.Duration) (R, bool)) R {
	t.Helper()
	var tried []time.Duration
	for limit := first; limit <= boundOf(t); limit *= 5 {
		tried = append(tried, limit)
		if r, reached := run(limit); reached {
			return r
		}
	}
	t.Fatalf("the limit came too early in each run, with %v\n%s", tried, evidence())
	panic("unreachable")
}

// Context returns a Context that ends with the test, or after Bound with a cause that says so. It is for calls that must not hang.
func Context(t interface {
	T
	Context() context.Context
	Cleanup(func())
}) context.Context {
	t.Helper()
	bound := boundOf(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), bound, fmt.Errorf("the test's call hung for %s", bound)) //nolint:gosec // cancel is called at the test's end
	t.Cleanup(cancel)
	return ctx
}
