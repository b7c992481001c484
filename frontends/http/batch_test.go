package httpfrontend

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// flushedRecorder tells other goroutines whether it was flushed.
type flushedRecorder struct {
	*httptest.ResponseRecorder
	flushed atomic.Bool
}

func (w *flushedRecorder) Flush() {
	w.ResponseRecorder.Flush()
	w.flushed.Store(true)
}

func TestASilentBatchHasSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := newRun().add(executor.Queued{}, executor.Started{}), &flushedRecorder{ResponseRecorder: httptest.NewRecorder()}
		svc := r.service()
		svc.events = func(ctx context.Context, _ string, after uint64) iter.Seq2[executor.Event, error] {
			if !w.flushed.Load() {
				t.Error("the client does not learn that the batch was accepted")
			}
			time.Sleep(time.Minute)
			r.add(done(0))
			return r.follow(ctx, after)
		}
		f, err := newFrontend(svc, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.ServeHTTP(w, newPost(t, "/api/v1/exec/batch", strings.NewReader(`{"code":"x","cases":[{}]}`), "application/json"))
		silence, records, _ := strings.Cut(w.Body.String(), "{")
		if silence != strings.Repeat("\n", len(silence)) || len(silence) < 4 || strings.Count(records, "\n") != 2 {
			t.Errorf("%d empty lines in a minute, want one at least every 15 s: %s", len(silence), w.Body)
		}
	})
}

// unread is the connection of a client that reads nothing behind the head of its answer.
type unread struct{ *httptest.ResponseRecorder }

func (unread) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A client that is seen to be gone ends what the server does for it at the next sign of life: nothing else may come for hours.
func TestAClientThatDoesNotReadEndsWhatRunsForIt(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]struct {
		r    *http.Request
		runs int
	}{
		"a batch":             {newPost(t, "/api/v1/exec/batch", strings.NewReader(`{"code":"x","cases":[{}]}`), "application/json"), 1},
		"a follower of a log": {httptest.NewRequest(http.MethodGet, "http://localhost"+one+"/events", nil), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			svc, _, killed := endless(true)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of the bubble
			defer cancel()
			func() {
				defer func() { _ = recover() }() // http.ErrAbortHandler, which ends the connection
				handlerOf(t, svc).ServeHTTP(unread{httptest.NewRecorder()}, request.r.WithContext(ctx))
			}()
			if took := time.Since(began); len(killed) != request.runs || took > time.Minute { // on the bubble's clock
				t.Errorf("%s: %d executions were ended after %s", name, len(killed), took)
			}
		})
	}
}

func TestACaseWhoseLogBreaksHasNoResult(t *testing.T) {
	t.Parallel()
	svc := newRun().add(executor.Queued{}, executor.Started{}).service()
	svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
		return func(yield func(executor.Event, error) bool) {
			yield(executor.Event{}, executor.Errorf(executor.Unavailable, "the log is gone"))
		}
	}
	w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/batch", `{"code":"x","cases":[{}]}`)
	record, _, _ := strings.Cut(w.Body.String(), "\n")
	var m map[string]any
	if err := json.Unmarshal([]byte(record), &m); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	if failure, _ := m["error"].(map[string]any); m["verdict"] != "refused" || failure["code"] != "unavailable" || m["result"] != nil {
		t.Errorf("%s", record)
	}
}
