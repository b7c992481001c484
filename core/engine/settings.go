package engine

import (
	"cmp"
	"slices"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/hostpath"
)

// settings are what Reconfigure replaces, as a whole. They do not change once the Engine has them.
type settings struct {
	// backends are those for new Executions, by name. names has the default one first.
	backends       map[string]*backend
	names          []string
	defaultBackend string
	// defaultLimits are for what a Spec does not ask for; no Spec gets more than maxLimits.
	defaultLimits, maxLimits executor.Limits
	spoolBytes               int64
	engine                   config.Engine
	sessions                 config.Sessions
	// hostDirectories: see Options. They have no links.
	hostDirectories []string
}

// newSettings checks o. A Backend that is in before, too, keeps its state. Codes: invalid.
func (e *Engine) newSettings(o Options, before *settings) (*settings, error) {
	if len(o.Backends) == 0 {
		return nil, executor.Errorf(executor.Invalid, "an engine needs at least one backend")
	}
	s := &settings{
		backends: map[string]*backend{}, defaultBackend: o.DefaultBackend, spoolBytes: cmp.Or(max(o.SpoolBytes, 0), 8<<30),
		engine: o.Engine, sessions: o.Sessions, hostDirectories: hostpath.Real(o.HostDirectories),
	}
	if s.engine.MaxConcurrent == 0 {
		s.engine = config.Default().Engine
	}
	if s.sessions.IdleTimeoutSeconds == 0 {
		s.sessions = config.Default().Sessions
	}
	b := s.engine
	if b.MaxConcurrent < 0 || b.MaxQueued < 0 || b.MaxPerOwner < 0 || b.MaxRunningPerOwner < 0 || b.MaxArtifactBytes < 0 || b.MaxSpoolBytes < 0 || b.MaxSpoolBytesPerOwner < 0 {
		return nil, executor.Errorf(executor.Invalid, "the engine's bounds must not be negative")
	}
	s.defaultLimits, s.maxLimits = limitRange(o.Limits)
	for name, b := range o.Backends {
		if b == nil {
			return nil, executor.Errorf(executor.Invalid, "backend %q is nil", name)
		}
		if before != nil && before.backends[name] != nil && before.backends[name].Backend == b {
			s.backends[name] = before.backends[name]
		} else {
			s.backends[name] = e.newBackend(name, b)
		}
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	if s.defaultBackend == "" && len(s.names) == 1 {
		s.defaultBackend = s.names[0]
	}
	if i := slices.Index(s.names, s.defaultBackend); i > 0 {
		s.names = slices.Concat([]string{s.defaultBackend}, s.names[:i], s.names[i+1:])
	}
	if _, ok := s.backends[s.defaultBackend]; !ok {
		return nil, executor.FieldErrorf(executor.Invalid, "backend", "the default backend %q is not configured", s.defaultBackend)
	}
	return s, nil
}

// now returns the present settings.
func (e *Engine) now() *settings { return e.settings.Load() }

// backend returns the backend that is configured under name now, or nil. The backend is not stopped before leave is called.
func (e *Engine) backend(name string) (b *backend, leave func()) {
	for {
		b = e.now().backends[name]
		if b == nil {
			return nil, func() {}
		}
		if b.enter() {
			return b, b.Leave
		}
		// It was retired between Load and enter: the settings have changed.
	}
}
