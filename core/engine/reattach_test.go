package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
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
	err := emit(s, executor.Started{Handle: []byte("h")}, out(0, "abc"), executor.Output{Stream: executor.Stderr, Data: []byte("err")}, executor.Display{Data: map[string][]byte{"a": []byte("b")}})
	err = errors.Join(err, s.Artifact(&tar.Header{Name: "a", Size: 3}, strings.NewReader("one")))
	return executor.Result{}, errors.Join(err, executor.Errorf(executor.Unavailable, "gone"))
}

func (b *resending) Attach(_ context.Context, job executor.Job, from executor.Resume, s executor.Sink) (executor.Result, error) {
	b.mu.Lock()
	b.calls++
	calls := b.calls
	b.mu.Unlock()
	if string(from.Handle) != "h" || from.Stdout != 3 || from.Stderr != 3 || job.Workspace != nil || job.Stdin != nil {
		return executor.Result{}, executor.Errorf(executor.Internal, "resumed with %+v and %+v", from, job)
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
		opened := 0
		input := executor.Input{Lasting: true, Workspace: again(tarOf(t, "a", "b"), &opened), Stdin: again([]byte("x"), &opened)}
		x := must(r.Submit(as("alice"), executor.Spec{Code: "exit 0", Outputs: []string{"*"}}, input))
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
		place := r.open(as("alice"))
		x = r.submit(as("alice"), "backend-die", in(place))
		if res := r.result(x.ID); res.Status != executor.StatusLost || res.SessionState != "" {
			t.Errorf("in a session: %+v, %+v", res, res.Failure)
		}
		if v := r.session(place); v.Status != executor.SessionActive { // the backend keeps its interpreter
			t.Errorf("the session is %+v", v)
		}
		r.wantIdle()
	})
}

func TestAProgramOutlivesItsPluginAsOftenAsItRunsForAWhileBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s, plugin := withRelay(lasting)
		r := newRig(t, s)
		x := r.submit(as("alice"), "sleep 1h\nprint done", func(s *executor.Spec) { s.Limits.Timeout = 2 * time.Hour })
		for range 2 * maxAttempts {
			time.Sleep(time.Minute)
			plugin.die(time.Second)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || stdout(r.events(x.ID)) != "done\n" {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		r.wantIdle()
	})
}

// nameless is a backend that can attach, but gives its programs no handle and goes away.
type nameless struct {
	resending
	attached bool
}

func (b *nameless) Run(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	return executor.Result{}, errors.Join(emit(s, executor.Started{}), executor.Errorf(executor.Unavailable, "gone"))
}

func (b *nameless) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	b.attached = true
	return succeeded, nil
}

func TestAProgramWithoutAHandleIsNotFollowedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		b := &nameless{}
		r := newRig(t, setup{backend: b})
		x := r.submit(as("alice"), "exit 0")
		if res := r.result(x.ID); res.Status != executor.StatusLost || b.attached {
			t.Errorf("%+v, attached: %t", res, b.attached)
		}
		r.wantIdle()
	})
}

// comingUp is a backend with sessions that does not know them at once.
type comingUp struct {
	*fake.Backend
	runs, lists atomic.Int32
}

func (b *comingUp) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if b.runs.Add(1) == 1 {
		return executor.Result{}, executor.Errorf(executor.NotFound, "no such session")
	}
	return b.Backend.Run(ctx, job, s)
}

func (b *comingUp) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	if b.runs.Load() > 0 && b.lists.Add(1) == 1 {
		return nil, executor.Errorf(executor.Unavailable, "it is coming up")
	}
	return b.Backend.ListFiles(ctx, id, path, recursive)
}

func TestASessionThatNobodyKnowsOfYetIsAskedForAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(func(s *setup) { s.backend = &comingUp{Backend: fake.New(s.fake)} }))
		ctx := as("alice")
		place := r.open(ctx)
		time.Sleep(lookInterval / 2)
		if got := r.say(ctx, place, "print on"); got != "on\n" {
			t.Errorf("it said %q", got)
		}
		if v := r.session(place); v.Status != executor.SessionActive {
			t.Errorf("the session is %+v", v)
		}
	})
}

// showing is a backend that displays more than may be kept, dies, and displays once more.
type showing struct{ resending }

func (b *showing) Run(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	err := emit(s, executor.Started{Handle: []byte("h")})
	for range executor.MaxDisplays + 1 {
		err = errors.Join(err, emit(s, executor.Display{Data: map[string][]byte{"a": []byte("b")}}))
	}
	return executor.Result{}, errors.Join(err, executor.Errorf(executor.Unavailable, "gone"))
}

func (b *showing) Attach(_ context.Context, _ executor.Job, _ executor.Resume, s executor.Sink) (executor.Result, error) {
	return succeeded, emit(s, executor.Display{Data: map[string][]byte{"a": []byte("b")}})
}

func TestTheBoundOfDisplaysHoldsAcrossAPluginsDeath(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{backend: &showing{}})
		x := r.submit(as("alice"), "exit 0")
		res := r.result(x.ID)
		shown := 0
		for _, ev := range r.events(x.ID) {
			if _, ok := ev.Body.(executor.Display); ok {
				shown++
			}
		}
		if res.Status != executor.StatusSucceeded || shown != executor.MaxDisplays || res.DisplaysDropped != 2 {
			t.Errorf("%+v: %d displays, %d dropped", res, shown, res.DisplaysDropped)
		}
	})
}

// endless is a backend that bounds no program and breaks off after 50 seconds.
type endless struct{ resending }

func (b *endless) Run(ctx context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	if err := emit(s, executor.Started{Handle: []byte("h")}); err != nil {
		return executor.Result{}, err
	}
	select {
	case <-time.After(50 * time.Second):
	case <-ctx.Done():
	}
	return executor.Result{}, executor.Errorf(executor.Unavailable, "gone")
}

func (b *endless) Attach(ctx context.Context, _ executor.Job, _ executor.Resume, _ executor.Sink) (executor.Result, error) {
	<-ctx.Done()
	return executor.Result{Status: executor.StatusKilled}, nil
}

func TestTheTimeOfAProgramThatIsFollowedAgainDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{false: "by the same server", true: "by the next one"}[restart], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				s := setup{backend: &endless{}, options: Options{Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t)}}
				r := newRig(t, s)
				x := r.submit(as("alice"), "exit 0", durable, func(s *executor.Spec) { s.Limits.Timeout = time.Minute })
				if restart {
					time.Sleep(49 * time.Second)
					if err := r.closeNow(); err != nil {
						t.Fatal(err)
					}
					r = newRig(t, s)
				}
				r.result(x.ID)
				got := must(r.Get(as("alice"), x.ID))
				if ran := got.FinishedAt.Sub(got.StartedAt); ran > 100*time.Second {
					t.Errorf("with a timeout of a minute it ended after %s", ran)
				}
			})
		})
	}
}

// lingeringBlobs goes on with a Put for a while after its reader has broken, and counts the Puts of one key at once.
type lingeringBlobs struct {
	executor.Blobs
	lingers time.Duration
	mu      sync.Mutex
	writing map[string]int
	highest int
}

func (b *lingeringBlobs) count(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing[key] += n
	b.highest = max(b.highest, b.writing[key])
}

func (b *lingeringBlobs) Put(ctx context.Context, key string, r io.Reader, limit int64, durable bool) (executor.BlobInfo, error) {
	b.count(key, 1)
	defer b.count(key, -1)
	info, err := b.Blobs.Put(ctx, key, r, limit, durable)
	if err != nil {
		time.Sleep(b.lingers)
	}
	return info, err
}

func TestArtifactsThatAreSentAgainWaitForTheEndOfTheFirstBlob(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		blobs := &lingeringBlobs{Blobs: openBlobs(t), lingers: 5 * time.Second, writing: map[string]int{}}
		r := newRig(t, setup{backend: &resending{}, options: Options{Blobs: blobs}})
		x := r.submit(as("alice"), "exit 0", func(s *executor.Spec) { s.Outputs = []string{"*"} })
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || len(res.Artifacts) == 0 {
			t.Errorf("%+v, %+v", res, res.Failure)
		}
		if blobs.highest != 1 {
			t.Errorf("%d blobs were written under one key at once", blobs.highest)
		}
		r.wantIdle()
	})
}

func TestCloseNamesABlobThatIsStillWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		blobs := &lingeringBlobs{Blobs: openBlobs(t), lingers: time.Hour, writing: map[string]int{}}
		r := newRig(t, setup{backend: &resending{}, options: Options{Blobs: blobs}})
		x := r.submit(as("alice"), "exit 0", func(s *executor.Spec) { s.Outputs = []string{"*"} })
		r.result(x.ID)
		if err := r.closeNow(); err == nil || !strings.Contains(err.Error(), "the artifacts of "+x.ID+" has not returned") {
			t.Errorf("Close says %v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}
