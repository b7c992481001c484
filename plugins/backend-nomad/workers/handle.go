package workers

import (
	"encoding/json"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// handle names the worker of an Execution or a Session, with the worker's own handle.
type handle struct {
	Worker string `json:"worker"`
	Inner  []byte `json:"inner,omitempty"`
}

func (h handle) encode() ([]byte, error) { return json.Marshal(h) }

// decodeHandle reports whether raw is a handle of this package.
func decodeHandle(raw []byte) (h handle, ok bool) {
	return h, json.Unmarshal(raw, &h) == nil && h.Worker != ""
}

// placedSink adds the worker to Started.
type placedSink struct {
	executor.Sink
	worker string
	// touched: something has come. err is the first error of the Sink.
	touched bool
	err     error
}

// Emit implements executor.Sink.
func (s *placedSink) Emit(e executor.Event) error {
	s.touched = true
	if started, ok := e.Body.(executor.Started); ok && len(started.Handle) > 0 {
		raw, err := handle{s.worker, started.Handle}.encode()
		if err != nil {
			return err
		}
		started.Handle = raw
		e.Body = started
	}
	return s.note(s.Sink.Emit(e))
}

// Trail implements executor.TrailingSink.
func (s *placedSink) Trail(e executor.Event) error {
	s.touched = true
	if trailing, ok := s.Sink.(executor.TrailingSink); ok {
		return s.note(trailing.Trail(e))
	}
	return s.note(s.Sink.Emit(e))
}

func (s *placedSink) note(err error) error {
	if s.err == nil {
		s.err = err
	}
	return err
}

// maxPlaces bounds the Executions whose workers are remembered. Remove asks all workers for one that was forgotten.
const maxPlaces = 10_000

// places remembers on which workers each Execution may have left something. It is safe for concurrent use.
type places struct {
	mu    sync.Mutex
	byID  map[string][]string
	order []string // the ids of byID, oldest first
}

// add notes that an Execution goes to a worker.
func (p *places) add(id, worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = map[string][]string{}
	}
	if _, known := p.byID[id]; !known {
		p.order = append(p.order, id)
	}
	p.byID[id] = append(p.byID[id], worker)
	if len(p.order) > maxPlaces {
		delete(p.byID, p.order[0])
		p.order = p.order[1:]
	}
}

// of returns the workers of an Execution; ok is false if they are not known.
func (p *places) of(id string) (workers []string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	workers, ok = p.byID[id]
	return workers, ok
}
