package fake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// minSessionMemory is the memory that an interpreter of this backend needs.
const minSessionMemory = 2 << 20

// maxPreview is the bound of executor.Variable's preview.
const maxPreview = 200

// OpenSession implements executor.SessionBackend.
func (b *Backend) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	if err := b.isDown(); err != nil {
		return executor.OpenedSession{}, err
	}
	if hook := b.options.OpenHook; hook != nil {
		if err := hook(ctx, s); err != nil {
			return executor.OpenedSession{}, err
		}
	}
	requirements, err := b.equip(ctx, s)
	if err != nil {
		return executor.OpenedSession{}, err
	}
	made := newSession(b, s, requirements)
	w := b.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[s.ID] != nil {
		return executor.OpenedSession{}, executor.Errorf(executor.Conflict, "session %s is open already", s.ID)
	}
	w.sessions[s.ID] = made
	b.hold(s.ID)
	return made.described(), nil
}

// equip checks the requirements of s and installs them.
func (b *Backend) equip(ctx context.Context, s executor.Session) ([]string, error) {
	if !b.caps.Sessions {
		return nil, executor.FieldErrorf(executor.Unimplemented, "session", "this backend has no sessions")
	}
	spec := s.Spec
	if spec.Language == "" {
		spec.Language = s.Language
	}
	if err := refuse(b.caps, b.options.Images, executor.Job{Spec: spec}); err != nil {
		return nil, err
	}
	if b.caps.Memory && s.Limits.MemoryBytes > 0 && s.Limits.MemoryBytes < minSessionMemory {
		return nil, executor.FieldErrorf(executor.Invalid, "config.memory_mb", "must be at least %d (got %d)", minSessionMemory>>20, s.Limits.MemoryBytes>>20)
	}
	if d := b.options.PrepareDelay; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, executor.Errorf(executor.Unavailable, "open a session: %w", context.Cause(ctx))
		}
	}
	for _, command := range spec.PreCommands {
		if command != "true" {
			return nil, executor.FieldErrorf(executor.Invalid, "pre_commands", "%q failed", command)
		}
	}
	if strings.HasPrefix(spec.Image, "no-such-image") {
		return nil, executor.FieldErrorf(executor.Invalid, "docker_image", "%q does not exist", spec.Image)
	}
	return resolveAll(spec.Requirements)
}

func resolveAll(text string) ([]string, error) {
	var resolved []string
	for line := range strings.Lines(text) {
		requirement, fail := parseRequirement(line)
		if fail != nil {
			return nil, executor.FieldErrorf(executor.Invalid, "requirements_txt", "%s", fail.Message)
		}
		if requirement != "" {
			resolved = append(resolved, requirement)
		}
	}
	slices.Sort(resolved)
	return resolved, nil
}

func (b *Backend) hold(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[id] = true
}

// AdoptSession implements executor.SessionBackend.
func (b *Backend) AdoptSession(_ context.Context, s executor.Session, handle []byte) (executor.OpenedSession, error) {
	if err := b.isDown(); err != nil {
		return executor.OpenedSession{}, err
	}
	if !b.caps.Attach {
		return executor.OpenedSession{}, executor.Errorf(executor.Unimplemented, "sessions do not outlive this backend")
	}
	b.world.mu.Lock()
	found := b.world.sessions[s.ID]
	b.world.mu.Unlock()
	if found == nil || string(handle) != string(found.handle()) {
		return executor.OpenedSession{}, errNoSession(s.ID)
	}
	b.hold(s.ID)
	return found.described(), nil
}

// RestartSession implements executor.SessionBackend.
func (b *Backend) RestartSession(_ context.Context, id string, wipe bool) error {
	s, err := b.session(id)
	if err != nil {
		return err
	}
	s.stop()
	s.renew()
	if wipe {
		for _, name := range s.tree.names() {
			s.tree.remove(name)
		}
	}
	return nil
}

// CloseSession implements executor.SessionBackend.
func (b *Backend) CloseSession(_ context.Context, id string) error {
	if err := b.isDown(); err != nil {
		return err
	}
	b.world.mu.Lock()
	s := b.world.sessions[id]
	b.world.mu.Unlock()
	if s != nil {
		s.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, id)
	return nil
}

// Variables implements executor.SessionTools.
func (b *Backend) Variables(_ context.Context, id string) ([]executor.Variable, error) {
	s, err := b.session(id)
	if err != nil {
		return nil, err
	}
	if s.isDead() {
		return nil, errNotRunning(id)
	}
	s.vars.mu.Lock()
	defer s.vars.mu.Unlock()
	list := []executor.Variable{}
	for _, name := range slices.Sorted(maps.Keys(s.vars.values)) {
		list = append(list, executor.Variable{Name: name, Type: "str", Preview: preview(s.vars.values[name])})
	}
	return list, nil
}

func preview(value string) string {
	if runes := []rune(value); len(runes) > maxPreview {
		return string(runes[:maxPreview-1]) + "…"
	}
	return value
}

func errNotRunning(id string) error {
	return executor.Errorf(executor.Conflict, "the interpreter of session %s is not running", id)
}

// AddRequirements implements executor.SessionTools.
func (b *Backend) AddRequirements(_ context.Context, id, requirements string) ([]string, error) {
	s, err := b.session(id)
	if err != nil {
		return nil, err
	}
	if !b.caps.Requirements {
		return nil, executor.FieldErrorf(executor.Unimplemented, "requirements_txt", "this backend installs nothing")
	}
	added, err := resolveAll(requirements)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := map[string]string{}
	for _, requirement := range slices.Concat(s.requirements, added) {
		name, _, _ := strings.Cut(requirement, "==")
		byName[name] = requirement
	}
	s.requirements = slices.Sorted(maps.Values(byName))
	return slices.Clone(s.requirements), nil
}

// Sessions returns the sorted ids of the existing Sessions, also of those that this Backend does not hold. Any Session after
// all were closed is a leftover.
func (b *Backend) Sessions() []string {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return slices.Sorted(maps.Keys(b.world.sessions))
}

// KillSession simulates the unexpected death of a Session's interpreter.
func (b *Backend) KillSession(id string) {
	b.world.mu.Lock()
	s := b.world.sessions[id]
	b.world.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	r := s.current
	s.mu.Unlock()
	s.die()
	if r != nil {
		r.killAll(errKilled)
	}
}

// DropSession simulates the loss of a Session's whole sandbox. The Session is then unknown.
func (b *Backend) DropSession(id string) {
	b.world.mu.Lock()
	s := b.world.sessions[id]
	b.world.mu.Unlock()
	if s != nil {
		s.close()
	}
}
