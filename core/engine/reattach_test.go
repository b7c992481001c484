package engine

import (
	"archive/tar"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAProgramThatOutlivesItsPluginIsFollowedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		r := newRig(t, s)
		x := r.submit(as("alice"), "print one\nflood stdout 300KB\nsleep 1m\nprint two\nsleep 1m\nprint three\nwrite-file a A", func(s *executor.Spec) {
			s.Outputs, s.Limits.OutputBytes = []string{"a"}, 1<<20
		})
		for range 2 {
			time.Sleep(30 * time.Second)
			plugin.die(5 * time.Second)
			time.Sleep(20 * time.Second)
		}
		res := r.result(x.ID)
		got := stdout(r.events(x.ID))
		if res.Status != executor.StatusSucceeded || !strings.HasPrefix(got, "one\n") || !strings.HasSuffix(got, "two\nthree\n") || res.StdoutBytes != int64(len(got)) ||
			res.StdoutTruncated || len(res.Artifacts) != 1 {
			t.Errorf("%+v, %+v, %d bytes", res, res.Failure, len(got))
		}
		if x := must(r.Get(as("alice"), x.ID)); x.Attempts != 1 {
			t.Errorf("%d attempts", x.Attempts)
		}
		r.wantBlobs(1)
		r.wantIdle()

		gone := r.submit(as("alice"), "hang", func(s *executor.Spec) { s.Limits.Timeout = time.Hour })
		synctest.Wait()
		next := plugin.current().Abandon() // and nobody starts it
		if res := r.result(gone.ID); res.Status != executor.StatusLost || res.Failure.Code != executor.Unavailable {
			t.Errorf("one whose backend does not come back: %+v", res)
		}
		if x := must(r.Get(as("alice"), gone.ID)); x.FinishedAt.Sub(x.StartedAt) < 2*time.Minute || x.FinishedAt.Sub(x.StartedAt) > 3*time.Minute {
			t.Errorf("it was waited for from %s to %s", x.StartedAt, x.FinishedAt)
		}
		if err := next.Remove(context.Background(), gone.ID); err != nil {
			t.Error(err)
		}
	})
}

// resending is a backend that dies once while it hands its artifacts over, and hands them all over again.
type resending struct {
	runFunc
	mu    sync.Mutex
	calls int
}

func (b *resending) Info(context.Context) (executor.Info, error) {
	caps := fake.DefaultCapabilities()
	caps.Attach = true
	return executor.Info{Name: "odd", Healthy: true, Capabilities: caps}, nil
}

func (b *resending) Run(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	err := emit(s, executor.Started{Handle: []byte("h")}, out(0, "abc"), executor.Display{Data: map[string][]byte{"a": []byte("b")}})
	err = errors.Join(err, s.Artifact(&tar.Header{Name: "a", Size: 3}, strings.NewReader("one")))
	return executor.Result{}, errors.Join(err, executor.Errorf(executor.Unavailable, "gone"))
}

func (b *resending) Attach(_ context.Context, _ executor.Job, from executor.Resume, s executor.Sink) (executor.Result, error) {
	b.mu.Lock()
	b.calls++
	calls := b.calls
	b.mu.Unlock()
	if string(from.Handle) != "h" || from.Stdout != 3 {
		return executor.Result{}, executor.Errorf(executor.Internal, "resumed with %+v", from)
	}
	// Told again, and further on.
	err := emit(s, executor.Started{Handle: []byte("h")}, out(0, "abc"))
	for _, name := range []string{"a", "b"} {
		err = errors.Join(err, s.Artifact(&tar.Header{Name: name, Size: 3}, strings.NewReader("two")))
	}
	if calls < 3 {
		return executor.Result{}, errors.Join(err, executor.Errorf(executor.Unavailable, "gone again"))
	}
	return succeeded, errors.Join(err, emit(s, out(1, "bcd")))
}

func TestWhatIsSentAgainIsNotDoubled(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := &resending{}
		r := newRig(t, setup{backend: b})
		x := r.submit(as("alice"), "exit 0", func(s *executor.Spec) { s.Outputs = []string{"*"} })
		res := r.result(x.ID)
		if res.Status != executor.StatusSucceeded || len(res.Artifacts) != 2 || stdout(r.events(x.ID)) != "abcd" || b.calls != 3 {
			t.Errorf("%+v, %+v, %q after %d calls", res, res.Failure, stdout(r.events(x.ID)), b.calls)
		}
		archive := must(r.Artifacts(as("alice"), x.ID))
		reader := tar.NewReader(archive)
		for _, name := range []string{"a", "b"} {
			if h, err := reader.Next(); err != nil || h.Name != name {
				t.Errorf("%+v, %v", h, err)
			}
		}
		_ = archive.Close()
		r.wantBlobs(1)
		r.wantIdle()
	})
}

func TestABackendThatBreaksOffAgainAndAgainIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, _ := withRelay(lasting)
		r := newRig(t, s)
		x := r.submit(as("alice"), "print one\nbackend-die")
		if res := r.result(x.ID); res.Status != executor.StatusLost || res.Failure.Code != executor.Unavailable || stdout(r.events(x.ID)) != "one\n" {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		r.wantIdle()
	})
}
