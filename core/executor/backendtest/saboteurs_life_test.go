package backendtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func sessionLifeSaboteurs() []saboteur {
	var late sync.WaitGroup
	return []saboteur{
		{
			does: "does not say which limit an Execution in a Session ran into", breaks: []string{"SE-25", "SE-26"}, sessions: true,
			hook: changeResult(nameNoLimit),
		},
		{
			does: "restarts the interpreter to add a requirement", breaks: []string{"SE-40"},
			wrap: faced(func(f *sessionFacade) {
				f.require = func(ctx context.Context, id, text string) ([]string, error) {
					all, err := f.Backend.AddRequirements(ctx, id, text)
					if err == nil {
						err = f.Backend.RestartSession(ctx, id, false)
					}
					return all, err
				}
			}),
		},
		{
			does: "does not say which field an unresolvable requirement is in", breaks: []string{"SE-41"},
			wrap: faced(func(f *sessionFacade) {
				f.require = func(ctx context.Context, id, text string) ([]string, error) {
					all, err := f.Backend.AddRequirements(ctx, id, text)
					if executor.CodeOf(err) == executor.Invalid {
						err = executor.Errorf(executor.Invalid, "something is wrong")
					}
					return all, err
				}
			}),
		},
		{
			does: "gives a Session the environment of the one before", breaks: []string{"SE-42"},
			wrap: func(b *fake.Backend) executor.Backend {
				var mu sync.Mutex
				var last map[string]string
				f := &sessionFacade{Backend: b}
				f.open = func(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
					mu.Lock()
					defer mu.Unlock()
					if s.Spec.Env == nil {
						s.Spec.Env = last
					}
					last = s.Spec.Env
					return b.OpenSession(ctx, s)
				}
				return f
			},
		},
		{
			does: "does not close a Session twice", breaks: []string{"SE-43"},
			wrap: faced(func(f *sessionFacade) {
				f.close = func(ctx context.Context, id string) error {
					if !slices.Contains(f.Sessions(), id) && strings.HasPrefix(id, "ctx-") {
						return executor.Errorf(executor.NotFound, "session %s", id)
					}
					return f.Backend.CloseSession(ctx, id)
				}
			}),
		},
		{
			does: "has no word for a Session that it does not hold", breaks: []string{"SE-44"},
			wrap: faced(func(f *sessionFacade) {
				f.variables = func(ctx context.Context, id string) ([]executor.Variable, error) {
					list, err := f.Backend.Variables(ctx, id)
					if executor.CodeOf(err) == executor.NotFound {
						err = errors.New("nil pointer")
					}
					return list, err
				}
			}),
		},
		{
			does: "opens no Session where memory is short, and says that it may be tried again", breaks: []string{"SE-48"}, sessions: true,
			caps: func(c *executor.Capabilities) { c.Memory = true },
			wrap: faced(func(f *sessionFacade) {
				f.open = func(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
					opened, err := f.Backend.OpenSession(ctx, s)
					if executor.CodeOf(err) == executor.Invalid && s.Spec.Requirements == "" {
						err = executor.Errorf(executor.Unavailable, "the interpreter does not come up")
					}
					return opened, err
				}
			}),
		},
		{
			does: "loses the Sessions of a machine that drains", breaks: []string{"SE-49"},
			drain: func(b *fake.Backend, id string) { _ = b.CloseSession(context.Background(), id) },
		},
		{
			does: "forgets the names of a Session on a machine that drains", breaks: []string{"SE-49"},
			drain: func(b *fake.Backend, id string) { _ = b.RestartSession(context.Background(), id, false) },
		},
		{
			does: "has an adoption that is broken", breaks: []string{"SE-45"},
			wrap: faced(func(f *sessionFacade) { f.adopt = func() error { return errors.New("not written yet") } }),
		},
		{
			does: "forgets the Result of an Execution in a Session once it was told", breaks: []string{"SE-47"}, sessions: true,
			caps: func(c *executor.Capabilities) { c.Attach = true },
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, attach: func() error { return executor.Errorf(executor.NotFound, "it has ended") }}
			},
		},
		{
			does: "closes a Session long after it said so", breaks: []string{"SE-43"},
			wrap: faced(func(f *sessionFacade) {
				f.close = func(_ context.Context, id string) error {
					late.Go(func() {
						time.Sleep(time.Second)
						_ = f.Backend.CloseSession(context.Background(), id) // it never fails
					})
					return nil
				}
			}),
			release: late.Wait,
		},
	}
}
