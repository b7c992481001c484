package runner

import "encoding/json"

func (a *agent) started(x *execution, s startedFrame) {
	s, out := a.noteStarted(x, s)
	_ = out.json(frameStarted, s) // a broken connection shows in the reader
}

// cellStarted is started for a cell, which mostly has ended before anybody could do something about its start.
func (a *agent) cellStarted(x *execution, s startedFrame) {
	if a.up != nil {
		a.started(x, s)
		return
	}
	s, _ = a.noteStarted(x, s)
	raw, err := json.Marshal(s)
	if err != nil {
		a.logf("started: %v", err)
		return
	}
	_ = x.box.first(frameStarted, raw) // a broken connection shows in the reader
}

// noteStarted keeps s for a host that comes back, and returns it as it is to be sent, and by what. A host that comes after
// this gets s with its introduction, and not by that writer.
func (a *agent) noteStarted(x *execution, s startedFrame) (startedFrame, *frameWriter) {
	if a.up != nil {
		s.PythonVersion, s.Requirements = x.start.PythonVersion, x.start.Requirements
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startedEvent = &s
	if a.up != nil {
		return s, a.up.writer()
	}
	return s, a.out
}
