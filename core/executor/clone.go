package executor

import (
	"maps"
	"slices"
)

// Clone returns a copy of s that shares nothing with it.
func (s Spec) Clone() Spec {
	s.Command = slices.Clone(s.Command)
	s.Args = slices.Clone(s.Args)
	s.Env = maps.Clone(s.Env)
	s.PreCommands = slices.Clone(s.PreCommands)
	s.Outputs = slices.Clone(s.Outputs)
	s.Detect = clonePointer(s.Detect)
	return s
}

// Clone returns a copy of r that shares nothing with it.
func (r Result) Clone() Result {
	r.ExitCode = clonePointer(r.ExitCode)
	r.Failure = clonePointer(r.Failure)
	r.Requirements = slices.Clone(r.Requirements)
	r.MemorySamples = slices.Clone(r.MemorySamples)
	r.Artifacts = slices.Clone(r.Artifacts)
	r.FilesChanged = slices.Clone(r.FilesChanged)
	return r
}

// Clone returns a copy of e that shares nothing with it.
func (e Execution) Clone() Execution {
	e.Spec = e.Spec.Clone()
	if e.Started != nil {
		e.Started = new(e.Started.clone())
	}
	if e.Result != nil {
		e.Result = new(e.Result.Clone())
	}
	return e
}

// Clone returns a copy of r that shares nothing with it.
func (r Record) Clone() Record {
	r.Execution = r.Execution.Clone()
	return r
}

// Clone returns a copy of s that shares nothing with it.
func (s Session) Clone() Session {
	s.Spec = s.Spec.Clone()
	s.Preload = slices.Clone(s.Preload)
	s.Requirements = slices.Clone(s.Requirements)
	return s
}

// Clone returns a copy of r that shares nothing with it.
func (r SessionRecord) Clone() SessionRecord {
	r.Session = r.Session.Clone()
	r.Handle = slices.Clone(r.Handle)
	return r
}

// Clone returns a copy of e that shares nothing with it.
func (e Event) Clone() Event {
	switch b := e.Body.(type) {
	case Started:
		e.Body = b.clone()
	case Output:
		b.Data = slices.Clone(b.Data)
		e.Body = b
	case Display:
		data := maps.Clone(b.Data)
		for mime, value := range data {
			data[mime] = slices.Clone(value)
		}
		b.Data = data
		e.Body = b
	case Finished:
		e.Body = Finished{Result: b.Result.Clone()}
	case Unknown:
		b.Raw = slices.Clone(b.Raw)
		e.Body = b
	case Queued, Progress:
	}
	return e
}

func (s Started) clone() Started {
	s.Requirements = slices.Clone(s.Requirements)
	s.Handle = slices.Clone(s.Handle)
	return s
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
