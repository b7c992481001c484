package httpfrontend

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
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
