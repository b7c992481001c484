package httpfrontend

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// heartbeat is the interval between checks for silence. An event stream is silent for at most two intervals; the API promises 15 s.
const heartbeat = 7 * time.Second

// eventStream writes Server-Sent Events. The reader of a log and the heartbeat use it at the same time.
type eventStream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	rc     *http.ResponseController
	opened bool
	// sent reports whether something was written since the last heartbeat.
	sent bool
}

func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, rc: http.NewResponseController(w)}
}

// begun reports whether the headers were sent.
func (s *eventStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// open sends the headers, once.
func (s *eventStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

func (s *eventStream) openLocked() error {
	if s.opened {
		return nil
	}
	s.opened = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
	return s.flush()
}

// flush sends what was written. Only the ResponseWriters of tests cannot flush.
func (s *eventStream) flush() error {
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// beat sends a comment if nothing else was sent since the last heartbeat.
func (s *eventStream) beat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		s.sent = false
		return nil
	}
	return s.writeLocked([]byte(": waiting\n\n"))
}

// send writes an Event of a log.
func (s *eventStream) send(e executor.Event, data []byte) error {
	kind := strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, strings.ToLower(string(e.Body.Kind())))
	return s.message("id: "+strconv.FormatUint(e.Seq, 10)+"\nevent: "+kind, data)
}

// message writes a message with the given fields and data.
func (s *eventStream) message(fields string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true
	line := make([]byte, 0, len(fields)+len(data)+16)
	line = append(line, fields...)
	line = append(line, "\ndata: "...)
	line = append(line, data...)
	return s.writeLocked(append(line, "\n\n"...))
}

func (s *eventStream) writeLocked(text []byte) error {
	if err := s.openLocked(); err != nil {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.flush()
}

// beating calls beat at each heartbeat, until ctx ends or the returned stop is called. An error of beat cancels ctx. stop returns
// when beat is not called any more.
func (f *frontend) beating(ctx context.Context, cancel context.CancelCauseFunc, beat func() error) (stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(f.heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if err := beat(); err != nil {
					cancel(err)
					return
				}
			}
		}
	})
	return func() {
		end(nil)
		wg.Wait()
	}
}
