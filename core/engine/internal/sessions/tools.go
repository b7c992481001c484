package sessions

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// variablesTimeout bounds the making of a list of variables, whose previews are the user's code.
	variablesTimeout = time.Minute
	maxVariables     = 1000
	maxPreview       = 200
)

// Variables lists the variables of s's interpreter. It waits for its turn.
func (s *Session) Variables(ctx context.Context) ([]executor.Variable, error) {
	work, release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	list, err := inSandbox(work, s, "list the variables of "+s.ID, variablesTimeout, func(ctx context.Context, b executor.SessionBackend) ([]executor.Variable, error) {
		return b.Variables(ctx, s.ID)
	})
	if err != nil {
		return nil, s.explain("list variables", err)
	}
	slices.SortFunc(list, func(a, b executor.Variable) int { return strings.Compare(a.Name, b.Name) })
	list = list[:min(len(list), maxVariables)]
	for i := range list {
		if runes := []rune(strings.ToValidUTF8(list[i].Preview, "\uFFFD")); len(runes) > maxPreview {
			list[i].Preview = string(runes[:maxPreview-1]) + "…"
		}
	}
	return list, nil
}

// AddRequirements installs requirements in s. It waits for its turn.
func (s *Session) AddRequirements(ctx context.Context, requirements string) ([]string, error) {
	r := s.registry
	work, release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := inSandbox(work, s, "install into "+s.ID, r.options.Prepare, func(ctx context.Context, b executor.SessionBackend) ([]string, error) {
		return b.AddRequirements(ctx, s.ID, requirements)
	})
	if err != nil {
		return nil, s.explain("add requirements", err)
	}
	r.mu.Lock()
	s.rec.Requirements = slices.Clone(all)
	r.mu.Unlock()
	s.save()
	return all, nil
}
