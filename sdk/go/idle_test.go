package pyexec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stream answers every request with pieces, one for each Read. After the last one Read waits for the end of the request.
type stream struct {
	pieces []string
	ctx    context.Context
	closed bool
}

// RoundTrip implements http.RoundTripper.
func (s *stream) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: s, Request: r}, nil
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		<-s.ctx.Done()
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err // some transports do not return the cause
	}
	n := copy(p, s.pieces[0])
	s.pieces = s.pieces[1:]
	return n, nil
}

func (s *stream) Close() error {
	s.closed = true
	return nil
}

func TestTheConsumersTimeIsNotTheServersSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stream{pieces: []string{
			"id: 1\nevent: queued\ndata: {\"position\":0}\n\n",
			"id: 2\nevent: finished\ndata: {\"execution_id\":\"exe_1\",\"status\":\"succeeded\"}\n\n",
		}}
		c := idleClient(t, s)
		seen := 0
		for _, err := range c.Events(t.Context(), "exe_1", 0) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
			time.Sleep(time.Hour) // the consumer works
			synctest.Wait()
		}
		if seen != 2 || !s.closed {
			t.Errorf("%d events, the stream is closed: %t", seen, s.closed)
		}
	})
}

func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idleClient(t, &stream{})
		began := time.Now()
		for _, err := range c.Events(t.Context(), "exe_1", 0) {
			if !errors.Is(err, errIdle) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it was left after %s", took)
		}
	})
}

func TestASilentConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		streams := []*stream{
			{pieces: []string{"id: 1\nevent: queued\ndata: {\"position\":0}\n\n"}},
			{pieces: []string{
				"id: 2\nevent: output\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":\"a\"}\n\n",
				"id: 3\nevent: finished\ndata: {\"execution_id\":\"exe_1\",\"status\":\"succeeded\"}\n\n",
			}},
		}
		requests, hooks, kinds := 0, 0, ""
		c := clientOver(t, func(r *http.Request) (*http.Response, error) {
			requests++
			return streams[requests-1].RoundTrip(r)
		}, WithIdleTimeout(time.Minute), WithRetry(RetryPolicy{Attempts: 2}), WithRetryHook(func(r Retry) {
			hooks++
			if !errors.Is(r.Err, errIdle) || !strings.Contains(r.Err.Error(), "silent") {
				t.Errorf("the hook got %v", r.Err)
			}
		}))
		for e, err := range c.Events(t.Context(), "exe_1", 0) {
			if err != nil {
				t.Fatal(err)
			}
			kinds += e.Body.Kind() + " "
		}
		if kinds != "queued output finished " || hooks != 1 || !streams[0].closed || !streams[1].closed {
			t.Errorf("events %s after %d retries, the streams are closed: %t, %t", kinds, hooks, streams[0].closed, streams[1].closed)
		}
	})
}

func TestASilentServerOfABatchIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const record = `{"index":0,"verdict":"passed"}` + "\n"
		c := idleClient(t, &stream{pieces: []string{"\n", record, "\n", record}})
		seen, began := 0, time.Now()
		_, err := c.RunBatch(t.Context(), Batch{Spec: Spec{Code: "1"}, Cases: []Case{{}, {}}}, Input{}, func(CaseResult) error {
			seen++
			time.Sleep(time.Hour) // the consumer's time is not the server's silence
			return nil
		})
		if CodeOf(err) != CodeUnavailable || !errors.Is(err, errIdle) || seen != 2 {
			t.Errorf("%d cases, %v", seen, err)
		}
		if took := time.Since(began); took != 2*time.Hour+time.Minute {
			t.Errorf("it was left after %s", took)
		}
	})
}

// idleClient tries once, and waits a minute for a silent server.
func idleClient(t *testing.T, s *stream) *Client {
	t.Helper()
	c, err := NewClient("http://server", WithHTTPClient(&http.Client{Transport: s}), WithIdleTimeout(time.Minute), WithRetry(RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var _ io.ReadCloser = (*stream)(nil)
