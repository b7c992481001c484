package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/python-executor/python-executor/cli/internal/watch"
	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/peer"
	"github.com/python-executor/python-executor/core/scripts"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// live takes a changed configuration into effect while the server works. Everything new is started and checked first: plugins, the
// handler of requests, the MCP frontend. Then the engine and the handler are replaced, and what is not needed any more drains. A
// configuration of which one part fails changes nothing.
type live struct {
	o     ServeOptions
	core  *core
	svc   executor.Service
	mcp   *mcpServer
	guard *peer.Guard
	// allow has a function for each executor.Backend, which lets its programs connect to the server.
	allow sync.Map
	// current handles requests. Requests that have begun stay with their handler.
	current atomic.Pointer[http.Handler]
	// problem is why the last change is not in effect; nil: it is.
	problem atomic.Pointer[problem]
}

// problem is a change that is not in effect.
type problem struct{ err error }

func newLive(o ServeOptions, c *core) *live {
	l := &live{o: o, core: c, guard: peer.NewEmpty(o.Log)}
	for name, entry := range o.Config.Backends {
		l.guardAgainst(c.backends[name], name, entry)
	}
	l.svc = reporting{c.engine, l}
	l.mcp = &mcpServer{o: o, core: c, svc: l.svc, refuse: l.guard.Refused}
	return l
}

// ServeHTTP implements http.Handler.
func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*l.current.Load()).ServeHTTP(w, r) }

// handler returns the handler of requests for c.
func (l *live) handler(c config.Config, authenticator *auth.Authenticator) (http.Handler, error) {
	return httpfrontend.New(l.svc, httpfrontend.Options{
		Auth: authenticator, Version: l.o.Bundle.Version, Bind: c.HTTP.Bind,
		MaxBodyBytes: c.HTTP.MaxBodyBytes, MaxBufferedBytes: c.HTTP.MaxBufferedBytes, SpoolDir: l.core.spoolDir,
		Metrics: promhttp.HandlerFor(l.core.registry, promhttp.HandlerOpts{}), Ready: l.core.engine.Ready, Notice: l.notice,
		Limits:       httpfrontend.LimitRange{Default: c.Limits.Default.Executor(), Max: c.Limits.Max.Executor()},
		MaxFileBytes: c.Sessions.MaxFileBytes,
		MCP:          l.mcp.mount(c),
		Log:          l.o.Log,
	})
}

// reporting is the engine, whose default backend has a warning while a changed configuration is not in effect.
type reporting struct {
	*engine.Engine
	live *live
}

// Backends implements executor.Service.
func (r reporting) Backends(ctx context.Context) ([]executor.Info, error) {
	infos, err := r.Engine.Backends(ctx)
	if p := r.live.problem.Load(); err == nil && p != nil && len(infos) > 0 {
		infos[0].Warnings = append(slices.Clone(infos[0].Warnings), "the changed configuration is not in effect: "+p.err.Error())
	}
	return infos, err
}

// notice tells everybody that a change is not in effect. It names the fields, but no values, which may be secret.
func (l *live) notice() string {
	p := l.problem.Load()
	if p == nil {
		return ""
	}
	text := "the changed configuration is not in effect"
	if e, ok := errors.AsType[*executor.Error](p.err); ok && len(e.Fields) > 0 {
		var fields []string
		for _, f := range e.Fields {
			fields = append(fields, f.Field)
		}
		text += " (" + strings.Join(fields, ", ") + ")"
	}
	return text + ": the log and the list of backends say why"
}

// watch follows the file and the hang-ups until ctx ends or end is called. end returns when no change is under way any more.
func (l *live) watch(ctx context.Context) (end func()) {
	if l.o.Reload == nil {
		return func() {}
	}
	var changes <-chan struct{}
	unwatch := func() {}
	if l.o.File != "" {
		file, err := watch.New(l.o.File, l.o.Log)
		if err != nil {
			l.o.Log.Warn("the configuration file is not watched: send SIGHUP after a change", "error", err)
		} else {
			changes, unwatch = file.Changes(), file.Close
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unwatch()
		l.follow(ctx, changes)
	}()
	return func() {
		cancel(errors.New("the server is stopping"))
		<-done
	}
}

// follow takes one change after another into effect. A change that comes while the one before is still being checked takes its place.
func (l *live) follow(ctx context.Context, changes <-chan struct{}) {
	begun := make(chan struct{}, 1)
	if changes != nil {
		begun <- struct{}{} // the file may have changed between its reading and the first watch
	}
	finished := make(chan struct{})
	close(finished)
	give := func(error) {}
	for {
		select {
		case <-ctx.Done():
		case <-begun:
		case <-changes:
		case <-l.o.Hangups:
		}
		give(errors.New("the configuration was changed again"))
		<-finished
		if ctx.Err() != nil {
			return
		}
		attempt, cancel := context.WithCancelCause(ctx)
		give, finished = cancel, make(chan struct{})
		go func(finished chan<- struct{}) {
			defer close(finished)
			defer cancel(nil)
			l.reload(attempt)
		}(finished)
	}
}

// reload reads the configuration and takes it into effect, or notes why it is not in effect.
func (l *live) reload(ctx context.Context) {
	err := l.notEmpty()
	var next config.Config
	if err == nil {
		next, err = l.o.Reload()
	}
	if err == nil {
		err = l.apply(ctx, next)
	}
	if err == nil || ctx.Err() != nil { // another change follows, or the server stops
		return
	}
	l.problem.Store(&problem{err})
	l.o.Log.Error("the changed configuration is not in effect: the former one stays", "error", err)
}

// notEmpty refuses an empty file, which is a valid configuration: it may be one that is being written.
func (l *live) notEmpty() error {
	if l.o.File == "" {
		return nil
	}
	raw, err := os.ReadFile(l.o.File)
	if err == nil && len(bytes.TrimSpace(raw)) == 0 {
		return executor.FieldErrorf(executor.Invalid, l.o.File, "must not be empty while the server runs (write {} for the defaults)")
	}
	return err
}

// atStart are the keys that count at the start only.
var atStart = []struct {
	key   string
	value func(*config.Config) *string
}{
	{"http.bind", func(c *config.Config) *string { return &c.HTTP.Bind }},
	{"http.pprof_bind", func(c *config.Config) *string { return &c.HTTP.PprofBind }},
	{"data_dir", func(c *config.Config) *string { return &c.DataDir }},
}

// apply takes next into effect, which ends the problem of a former change. An error changes nothing.
func (l *live) apply(ctx context.Context, next config.Config) (err error) {
	former := *l.core.config.Load()
	for _, k := range atStart {
		if was, is := *k.value(&former), k.value(&next); was != *is {
			l.o.Log.Warn("a change needs a restart of the server", "key", k.key, "in_effect", was, "in_file", *is)
			*is = was
		}
	}
	if err := next.Validate(); err != nil { // with the former address, for example, tokens may be needed
		return err
	}
	if reflect.DeepEqual(former, next) {
		l.problem.Store(nil)
		return nil
	}
	authenticator, err := newAuthenticator(next)
	if err != nil {
		return err
	}
	handler, err := l.handler(next, authenticator)
	if err != nil {
		return err
	}
	backends, err := l.backends(ctx, former, next)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			l.discard(ctx, backends)
		}
	}()
	if l.mcp.differs(next) {
		if err := l.mcp.replace(ctx, next, false); err != nil {
			return fmt.Errorf("mcp: %w", err)
		}
	}
	retired, err := l.core.engine.Reconfigure(engineOptions(next, backends))
	if err != nil {
		return err // the server is stopping
	}
	l.core.backends = backends
	l.core.config.Store(&next)
	l.current.Store(&handler)
	l.problem.Store(nil) // before the message: a reader of the log finds the server ready
	for _, r := range retired {
		l.core.retiring.Go(func() { l.retire(ctx, r) })
	}
	l.o.Log.Info("the changed configuration is in effect", "changed", changedKeys(former, next), "backend", next.Backend, "draining", len(retired))
	return nil
}

// backends returns the backends of next: those that are as in former, and new ones, which it starts and checks.
func (l *live) backends(ctx context.Context, former, next config.Config) (_ map[string]executor.Backend, err error) {
	all := map[string]executor.Backend{}
	defer func() {
		if err != nil {
			l.discard(ctx, all)
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(next.Backends)) {
		entry := next.Backends[name]
		if was, ok := former.Backends[name]; ok && reflect.DeepEqual(was, entry) {
			all[name] = l.core.backends[name]
			continue
		}
		l.o.Log.Info("starting a changed backend", "backend", name)
		b, err := l.core.host.Add(ctx, name, entry)
		if err != nil {
			return nil, err
		}
		all[name] = b
		l.guardAgainst(b, name, entry)
		info, err := b.Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("backend %s: %w", name, err)
		}
		if !info.Healthy {
			return nil, executor.FieldErrorf(executor.Unavailable, "backends."+name, "must be healthy (got %q)", cmp.Or(info.Message, "not healthy"))
		}
	}
	if !hasScripts(next) {
		return all, nil
	}
	if hasScripts(former) && reflect.DeepEqual(former.Scripts, next.Scripts) {
		all[scripts.Name] = l.core.backends[scripts.Name]
		return all, nil
	}
	b, err := newScripts(next, l.core.spoolDir, l.o.Bundle.Version, l.o.Log)
	if err == nil {
		all[scripts.Name] = b
	}
	return all, err
}

// guardAgainst refuses connections of the programs of a backend until the backend has stopped.
func (l *live) guardAgainst(b executor.Backend, name string, entry config.Backend) {
	l.allow.Store(b, l.guard.Refuse(programUIDs(map[string]config.Backend{name: entry}, l.o.Bundle)))
}

// discard stops the backends of a change that is not in effect, and leaves those that are.
func (l *live) discard(ctx context.Context, backends map[string]executor.Backend) {
	for name, b := range backends {
		if l.core.backends[name] != b {
			l.stop(ctx, b)
		}
	}
}

// retire stops a former backend once it is drained.
func (l *live) retire(ctx context.Context, r engine.Retired) {
	<-r.Drained
	l.stop(ctx, r.Backend)
}

// stop ends a backend that has nothing left.
func (l *live) stop(ctx context.Context, b executor.Backend) {
	err := closeScripts(b)
	if _, ok := b.(*scripts.Backend); !ok {
		err = bounded(context.WithoutCancel(ctx), func(ctx context.Context) error { return l.core.host.Remove(ctx, b) })
	}
	if err != nil {
		l.o.Log.Warn("a former backend did not stop in order", "error", err)
		return // programs of it may run on
	}
	if allow, ok := l.allow.LoadAndDelete(b); ok {
		allow.(func())()
	}
}
