package httpfrontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// maxPartLine bounds what waits for the end of its line; the policy for scripts cuts lines before that.
const maxPartLine = 1 << 20

// scriptStream writes the events of the test-start specification.
type scriptStream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	rc     *http.ResponseController
	opened bool
	// part is a line that has not ended, by stream.
	part map[executor.Stream][]byte
}

func (s *scriptStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// event writes one event. beat: it is a sign of life, which does not begin a stream: until then an error is a status.
func (s *scriptStream) event(kind string, data any, beat bool) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		if beat {
			return nil
		}
		s.opened = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		s.w.WriteHeader(http.StatusOK)
	}
	var b bytes.Buffer
	b.WriteString("event: " + kind + "\ndata: ")
	b.Write(raw)
	b.WriteString("\n\n")
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// lines writes the lines that o ends. It is called by one goroutine.
func (s *scriptStream) lines(o executor.Output) error {
	if s.part == nil {
		s.part = map[executor.Stream][]byte{}
	}
	data := append(s.part[o.Stream], o.Data...)
	for {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		if !ended && len(data) < maxPartLine {
			s.part[o.Stream] = data
			return nil
		}
		if err := s.line(o.Stream, line); err != nil {
			return err
		}
		data = rest
	}
}

func (s *scriptStream) line(stream executor.Stream, line []byte) error {
	text := strings.ToValidUTF8(strings.TrimSuffix(string(line), "\r"), "\uFFFD")
	return s.event(string(stream), map[string]string{"line": text}, false)
}

// flushLines writes what did not end with a line break.
func (s *scriptStream) flushLines() error {
	var errs []error
	for _, stream := range []executor.Stream{executor.Stdout, executor.Stderr} {
		if part := s.part[stream]; len(part) > 0 {
			errs = append(errs, s.line(stream, part))
		}
	}
	s.part = nil
	return errors.Join(errs...)
}
