package httpfrontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// maxPartLine bounds the bytes of an unfinished line. The backend cuts lines before that.
const maxPartLine = 1 << 20

// scriptStream writes the events of the test-start specification.
type scriptStream struct {
	*eventStream
	// part is the unfinished line of each stream.
	part map[executor.Stream][]byte
}

// event writes one event.
func (s *scriptStream) event(kind string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.message("event: "+kind, raw)
}

// ping writes an event that shows that the script runs.
func (s *scriptStream) ping() error {
	return s.event("ping", map[string]any{"t": time.Now().UnixMilli()})
}

// lines writes the lines that o completes. It must be called by one goroutine.
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
	return s.event(string(stream), map[string]string{"line": text})
}

// flushLines writes the unfinished lines.
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
