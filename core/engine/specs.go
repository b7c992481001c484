package engine

import "github.com/python-executor/python-executor/core/executor"

// maxHeldSpecs bounds the memory that the large Specs of the Submits under way take together. Half of it is for one owner.
// A Submit may take long, because its input is uploaded meanwhile; when it has returned, the Store has the Spec.
const maxHeldSpecs = 256 << 20

// heldSpecs counts the bytes of large Specs. The Engine's lock guards it.
type heldSpecs struct {
	all int64
	of  map[string]int64 // by owner
}

// holdSpec counts owner's Spec of size bytes until release is called. Small ones do not count. Codes: exhausted.
func (e *Engine) holdSpec(owner string, size int64) (release func(), err error) {
	if size <= executor.BriefBytes {
		return func() {}, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.specs
	full := ""
	switch {
	case h.of[owner]+size > maxHeldSpecs/2:
		full = "the large programs that you send at once"
	case h.all+size > maxHeldSpecs:
		full = "the large programs that are sent at once"
	}
	if full != "" {
		e.metrics.refused.Inc()
		return nil, errFull(full, e.retryAfter())
	}
	h.all += size
	h.of[owner] += size
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		h.all -= size
		if h.of[owner] -= size; h.of[owner] == 0 {
			delete(h.of, owner)
		}
	}, nil
}
