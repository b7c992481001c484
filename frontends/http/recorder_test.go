package httpfrontend

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAnAnswerThatIsTakenHasNoEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		r := &recorder{ResponseWriter: w, idle: writeIdle}
		for range 20 {
			time.Sleep(writeIdle / 2)
			if _, err := r.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if last := w.set[len(w.set)-1]; time.Until(last) < writeIdle/2 {
				t.Fatalf("a client has %s to take what was written, want up to %s", time.Until(last), writeIdle)
			}
		}
	})
}

func TestAnInterimAnswerIsNotTheAnswer(t *testing.T) {
	t.Parallel()
	r := &recorder{ResponseWriter: httptest.NewRecorder(), idle: writeIdle}
	if r.WriteHeader(http.StatusEarlyHints); r.status != 0 {
		t.Errorf("the status is %d", r.status)
	}
	if r.WriteHeader(http.StatusNotFound); r.status != http.StatusNotFound {
		t.Errorf("the status is %d", r.status)
	}
}

// flushing notes how much was written at each Flush.
type flushing struct {
	*httptest.ResponseRecorder
	at []int
}

func (f *flushing) Flush() { f.at = append(f.at, f.Body.Len()) }

func TestLogsThatAreFollowedAreSentAtOnce(t *testing.T) {
	t.Parallel()
	w := &flushing{ResponseRecorder: httptest.NewRecorder()}
	h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
		for _, b := range []executor.Body{out(executor.Stdout, 0, "so far"), executor.Progress{}, out(executor.Stdout, 6, "live"), out(executor.Stdout, 10, "more"), done(0)} {
			if !yield(b) {
				return nil
			}
		}
		return nil
	})
	h.ServeHTTP(w, newGet(t, t.Context(), one+"/logs?follow=true"))
	// The headers, the log so far, and each piece behind it.
	if want := []int{0, 6, 10, 14}; !slices.Equal(w.at, want) {
		t.Errorf("sent at %d bytes, want at %d", w.at, want)
	}
}

func TestLogsThatEndWithTheirFollowerAreCut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	h := streaming(t, func(_ context.Context, yield func(executor.Body) bool) error {
		yield(out(executor.Stdout, 0, "x"))
		cancel(nil)
		return nil
	})
	if !ends(h, httptest.NewRecorder(), newGet(t, ctx, one+"/logs?follow=true")) {
		t.Error("a part of a log looks like the whole")
	}
}
