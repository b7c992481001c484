package mcpfrontend

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// postStream is the response to one POST. The first notification for that request turns the response into a stream of events
// (text/event-stream). The answer, which mcp-go writes as JSON, then becomes the last event. Without a notification the
// response is the one that mcp-go writes.
type postStream struct {
	http.ResponseWriter
	// can reports whether the client accepts a stream and the connection can flush.
	can bool

	mu sync.Mutex
	// streaming reports whether the header of a stream was written.
	streaming bool
	// ours reports whether notify has written that header. The JSON of mcp-go must then become an event.
	ours   bool
	began  bool         // mcp-go has written a header
	closed bool         // the response is complete
	body   bytes.Buffer // the JSON of mcp-go, until finish
}

func newPostStream(w http.ResponseWriter, r *http.Request) *postStream {
	can := false
	for _, accept := range r.Header.Values("Accept") {
		can = can || strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*")
	}
	_, flushes := w.(http.Flusher)
	return &postStream{ResponseWriter: w, can: can && flushes}
}

// notify is the request's notifier.
func (s *postStream) notify(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.can || s.closed || s.began && !s.streaming {
		return nil
	}
	if !s.streaming {
		h := s.ResponseWriter.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		s.ResponseWriter.WriteHeader(http.StatusOK)
		s.streaming, s.ours = true, true
	}
	return s.event(message)
}

func (s *postStream) event(message []byte) error {
	var b bytes.Buffer
	b.WriteString("event: message\ndata: ")
	b.Write(plainMessage(bytes.TrimSpace(message)))
	b.WriteString("\n\n")
	_, err := s.ResponseWriter.Write(b.Bytes())
	if f, ok := s.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	return err
}

// Header implements http.ResponseWriter. After notify has written the header, changes by mcp-go have no effect.
func (s *postStream) Header() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ours {
		return http.Header{}
	}
	return s.ResponseWriter.Header()
}

// WriteHeader implements http.ResponseWriter.
func (s *postStream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	if s.ours {
		return
	}
	s.streaming = strings.HasPrefix(s.ResponseWriter.Header().Get("Content-Type"), "text/event-stream")
	s.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *postStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	if s.ours {
		return s.body.Write(p)
	}
	if _, err := s.ResponseWriter.Write(plainMessage(p)); err != nil { // mcp-go writes a whole message in one call
		return 0, err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (s *postStream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.ResponseWriter.(http.Flusher); ok && !s.ours {
		f.Flush()
	}
}

// finishBatch answers a batch.
func (s *postStream) finishBatch(answers []json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	// Writes fail only if the client has disconnected.
	switch {
	case s.ours:
		for _, answer := range answers {
			_ = s.event(answer)
		}
	case len(answers) == 0:
		s.ResponseWriter.WriteHeader(http.StatusAccepted)
	default:
		s.ResponseWriter.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(s.ResponseWriter).Encode(answers)
	}
}

// finish writes the JSON of mcp-go as the last event, after mcp-go has returned. If mcp-go has written events itself, they
// are written unchanged.
func (s *postStream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if !s.ours || s.body.Len() == 0 {
		return
	}
	if raw := s.body.Bytes(); bytes.HasPrefix(raw, []byte("event:")) || bytes.HasPrefix(raw, []byte("id:")) || bytes.HasPrefix(raw, []byte("data:")) {
		_, _ = s.ResponseWriter.Write(raw)
		return
	}
	_ = s.event(s.body.Bytes()) // fails only if the client has disconnected
}
