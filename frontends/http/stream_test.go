package httpfrontend

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// streams are the paths that follow an Execution or a script.
var streams = []string{one + "/events", "/sse/run_script_stream?path=/x"}

// streaming is a Service whose log is what a test says, for Executions and scripts.
func streaming(t *testing.T, log func(ctx context.Context, yield func(executor.Body) bool) error) http.Handler {
	t.Helper()
	r := newRun().add(executor.Queued{}, executor.Started{})
	svc := r.service()
	svc.events = func(ctx context.Context, _ string, _ uint64) iter.Seq2[executor.Event, error] {
		return func(yield func(executor.Event, error) bool) {
			seq := uint64(0)
			err := log(ctx, func(b executor.Body) bool {
				seq++
				return yield(executor.Event{Seq: seq, Body: b}, nil)
			})
			if err != nil {
				yield(executor.Event{}, err)
			}
		}
	}
	return handlerOf(t, svc)
}

func newGet(t *testing.T, ctx context.Context, path string) *http.Request { //nolint:revive // t is first in tests
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Host = "localhost"
	return r
}

// ends calls h and reports whether it cut the connection.
func ends(h http.Handler, w http.ResponseWriter, r *http.Request) (wasCut bool) {
	defer func() {
		if p := recover(); p != nil {
			err, _ := p.(error)
			if wasCut = errors.Is(err, http.ErrAbortHandler); !wasCut {
				panic(p)
			}
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

func TestAStreamWithEventsHasNoHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
			for range 20 {
				if !yield(out(executor.Stdout, 0, "x\n")) {
					return nil
				}
				time.Sleep(heartbeat / 2)
			}
			yield(done(0))
			return nil
		})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newGet(t, t.Context(), one+"/events"))
		if strings.Contains(w.Body.String(), ": waiting") || strings.Count(w.Body.String(), "event: output") != 20 {
			t.Errorf("want 20 events and no heartbeat: %s", w.Body)
		}
	})
}

func TestAStreamThatNobodyTakesEnds(t *testing.T) {
	t.Parallel()
	for _, path := range streams {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := streaming(t, func(ctx context.Context, yield func(executor.Body) bool) error {
					yield(executor.Started{})
					<-ctx.Done()
					return context.Cause(ctx)
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				ends(h, &leaving{ResponseRecorder: httptest.NewRecorder(), after: 1}, newGet(t, ctx, path))
				if took := time.Since(began); took > 2*heartbeat {
					t.Errorf("it ended after %s", took)
				}
			})
		})
	}
}

// leaving is a client that takes the headers and some writes; the next one fails.
type leaving struct {
	*httptest.ResponseRecorder
	after int
}

func (l *leaving) Write(p []byte) (int, error) {
	if l.after--; l.after < 0 {
		return 0, errors.New("the client has gone")
	}
	return l.ResponseRecorder.Write(p)
}

func TestAnEventThatNobodyTakesEndsItsStream(t *testing.T) {
	t.Parallel()
	sent := 0
	h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
		for sent = range 10 {
			if !yield(out(executor.Stdout, 0, "x\n")) {
				return nil
			}
		}
		return nil
	})
	ends(h, &leaving{ResponseRecorder: httptest.NewRecorder(), after: 2}, newGet(t, t.Context(), one+"/events"))
	if sent != 2 {
		t.Errorf("%d events were read for a client that took 2", sent)
	}
}

// stuck is a client that takes nothing of a heartbeat until free is closed.
type stuck struct {
	*httptest.ResponseRecorder
	mark   string
	begun  func()
	free   chan struct{}
	mu     sync.Mutex
	inside bool
}

func (s *stuck) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.mark) {
		s.mu.Lock()
		s.inside = true
		s.mu.Unlock()
		s.begun()
		<-s.free
		s.mu.Lock()
		s.inside = false
		s.mu.Unlock()
	}
	return len(p), nil
}

func TestAHeartbeatEndsBeforeItsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		beating := make(chan struct{})
		h := streaming(t, func(context.Context, func(executor.Body) bool) error {
			<-beating
			return executor.Errorf(executor.Unavailable, "gone")
		})
		w := &stuck{ResponseRecorder: httptest.NewRecorder(), mark: ": waiting", begun: sync.OnceFunc(func() { close(beating) }), free: make(chan struct{})}
		ended := make(chan bool, 1)
		go func() { ended <- ends(h, w, newGet(t, t.Context(), one+"/events?after=2")) }()
		<-beating
		synctest.Wait()
		select {
		case <-ended:
			t.Error("its heartbeat is still being written")
		default:
		}
		close(w.free)
		select {
		case wasCut := <-ended:
			if !wasCut {
				t.Error("a stream that broke looks whole")
			}
		case <-time.After(time.Minute):
			t.Error("it does not end")
		}
	})
}

func TestAnEmptyStreamIsAStream(t *testing.T) {
	t.Parallel()
	h := streaming(t, func(context.Context, func(executor.Body) bool) error { return nil })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newGet(t, t.Context(), one+"/events"))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() > 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestAStreamEndsWithWhatIsKnownOfAnExecutionThatWasRemoved(t *testing.T) {
	t.Parallel()
	for code, whole := range map[executor.Code]bool{executor.Purged: true, executor.NotFound: true, executor.Unavailable: false} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			r := newRun().add(executor.Queued{}, executor.Started{})
			svc := r.service()
			state := r.state()
			asked := 0
			svc.get = func(context.Context, string) (executor.Execution, error) {
				if asked++; asked > 1 {
					return executor.Execution{}, executor.Errorf(code, "no more")
				}
				return state, nil
			}
			r.add(done(0))
			w := httptest.NewRecorder()
			wasCut := ends(handlerOf(t, svc), w, newGet(t, t.Context(), one+"/events"))
			if end := strings.Contains(w.Body.String(), "event: finished") && strings.Contains(w.Body.String(), `"status":"succeeded"`); end != whole || wasCut == whole {
				t.Errorf("the stream was cut: %t, its end is there: %t, want %t: %s", wasCut, end, whole, w.Body)
			}
		})
	}
}

func TestADrainEndsTheFollowersOfWhatRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		r *run
		// left: the follower has gone before the drain.
		left, cancelled bool
		asked           int
		err             error
	}{
		"of what runs":                   {newRun().add(executor.Queued{}), false, true, 1, nil},
		"of what has ended":              {hello(), false, false, 1, nil},
		"of what runs, which left first": {newRun().add(executor.Queued{}), true, false, 0, nil},
		"of what nobody knows":           {newRun(), false, true, 1, executor.Errorf(executor.Unavailable, "the store is away")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				svc, asked := tt.r.service(), 0
				svc.get = func(context.Context, string) (executor.Execution, error) {
					asked++
					return tt.r.state(), tt.err
				}
				drain, end := context.WithCancelCause(t.Context())
				ctx, leave := handlerOf(t, svc).following(context.WithValue(t.Context(), drainKey{}, drain), testID)
				if tt.left {
					leave(nil)
				}
				end(nil)
				synctest.Wait()
				if drained := errors.Is(context.Cause(ctx), errDraining); drained != tt.cancelled || asked != tt.asked {
					t.Errorf("cancelled by the drain: %t, want %t; the state was asked for %d times, want %d", drained, tt.cancelled, asked, tt.asked)
				}
				leave(nil)
			})
		})
	}
}
