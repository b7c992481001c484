package fake

import (
	"maps"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

func (w *world) gate(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[name] == nil {
		w.gates[name] = make(chan struct{})
	}
	return w.gates[name]
}

func (w *world) all() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.running))
}

// enter registers r. An id cannot run twice at the same time.
func (w *world) enter(r *run) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[r.job.ID] != nil {
		return executor.Errorf(executor.Conflict, "execution %s runs already", r.job.ID)
	}
	w.running[r.job.ID] = r
	w.runs = append(w.runs, r.job.ID)
	return nil
}

// leave removes r from the running jobs. With keep, Attach can still find r.
func (w *world) leave(r *run, keep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r.job.ID)
	if keep {
		w.kept[r.job.ID] = r
	}
}

func (w *world) find(id string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.running[id]; r != nil {
		return r
	}
	return w.kept[id]
}
