package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// FrontendOptions describe the frontend plugin to run.
type FrontendOptions struct {
	// Name is the name of the frontend ("mcp"). The fields of its configuration errors begin with it.
	Name string
	// Path is the program, Args its whole argv.
	Path string
	Args []string
	// Options is the configuration, as JSON.
	Options json.RawMessage
	// FirstOptions replace Options for the first process; nil: they do not.
	FirstOptions json.RawMessage
	// RunDir and Instance are as in Options.
	RunDir   string
	Instance string
	// Restart says that the plugin is started again, after a pause, when it ends by itself.
	Restart bool
	// Background makes StartFrontend return before the plugin has started. A start that fails is logged and repeated after a
	// pause. It needs Restart.
	Background bool
	// Log takes the plugin's log; nil discards it.
	Log *slog.Logger

	// steady replaces steadyTime in tests.
	steady time.Duration
}

// Frontend keeps one frontend plugin running. Its methods are safe for concurrent use.
type Frontend struct {
	options FrontendOptions
	service executor.Service
	log     *slog.Logger
	dir     *runDir

	life    context.Context
	endLife context.CancelCauseFunc
	done    chan struct{}

	mu      sync.Mutex
	current *plugin.Frontend
	caller  *caller // of current
	details map[string]string
	up      chan struct{} // closed while there is a process
	err     error
	closing context.Context
}

// StartFrontend launches the plugin, which serves svc. ctx bounds the start only, and nothing with Background. Codes: as
// plugin.Launch.
func StartFrontend(ctx context.Context, o FrontendOptions, svc executor.Service) (*Frontend, error) {
	f := &Frontend{options: o, service: svc, log: o.Log, done: make(chan struct{}), up: make(chan struct{})}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.log = f.log.With("frontend", o.Name)
	dir, err := openRunDir(o.RunDir, f.log)
	if err != nil {
		return nil, err
	}
	f.dir = dir
	f.life, f.endLife = context.WithCancelCause(context.Background())
	if o.Background {
		go f.supervise(nil)
		return f, nil
	}
	first, err := f.launch(ctx)
	if err != nil {
		f.endLife(nil)
		return nil, errors.Join(err, dir.close())
	}
	go f.supervise(first)
	return f, nil
}

func (f *Frontend) launch(ctx context.Context) (*plugin.Frontend, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c := newCaller(f.service, f.log)
	options := f.options.Options
	if f.options.FirstOptions != nil {
		options, f.options.FirstOptions = f.options.FirstOptions, nil
	}
	p, err := plugin.LaunchFrontend(ctx, plugin.LaunchOptions{
		Path: f.options.Path, Args: f.options.Args, RunDir: f.dir.path,
		Configure: plugin.Configure{
			Name: f.options.Name, Instance: f.options.Instance, Options: options,
		},
		Log: f.log,
	}, c)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.caller, f.details = p, c, p.Info().Details
	close(f.up)
	return p, nil
}

// supervise waits for the end of each process and starts the next. p is the first process; nil: it is not started yet.
func (f *Frontend) supervise(p *plugin.Frontend) {
	defer close(f.done)
	pauses := pauses{steady: cmp.Or(f.options.steady, steadyTime)}
	if p == nil {
		var err error
		if p, err = f.launch(f.life); err != nil {
			f.notStarted(err)
			if p = f.relaunch(&pauses, 0); p == nil {
				return
			}
		}
	}
	for {
		began := time.Now()
		select {
		case <-p.Ended():
		case <-f.life.Done():
		}
		closed := f.life.Err() != nil
		err := f.end(p)
		if closed || !f.options.Restart {
			f.mu.Lock()
			f.err = err
			f.mu.Unlock()
			return
		}
		f.log.Warn("frontend ended", "error", err)
		if p = f.relaunch(&pauses, time.Since(began)); p == nil {
			return
		}
	}
}

// relaunch starts a process after a pause, as often as that fails. uptime is that of the process before. It returns nil if the
// frontend is closed.
func (f *Frontend) relaunch(pauses *pauses, uptime time.Duration) *plugin.Frontend {
	for ; ; uptime = 0 {
		pause := pauses.next(uptime)
		f.log.Warn("frontend is started again", "pause", pause)
		if !rest(f.life, pause) {
			return nil
		}
		p, err := f.launch(f.life)
		if err == nil {
			return p
		}
		f.notStarted(err)
	}
}

// notStarted logs why a process has not started, unless the frontend is closed.
func (f *Frontend) notStarted(err error) {
	if f.life.Err() == nil {
		f.log.Error("frontend does not start", "error", err)
	}
}

// end ends p if it still runs and returns why p has ended; nil if it ended in order.
func (f *Frontend) end(p *plugin.Frontend) error {
	f.mu.Lock()
	ctx, c := f.closing, f.caller
	f.current, f.caller, f.details, f.up = nil, nil, nil, make(chan struct{})
	f.mu.Unlock()
	if ctx == nil {
		ctx = context.Background()
	}
	defer c.abandon(ctx)
	select {
	case <-p.Ended():
		err := p.EndErr()
		ctx, cancel := context.WithTimeout(ctx, drainLimit)
		defer cancel()
		return errors.Join(err, p.Close(ctx))
	default:
		return p.Close(ctx)
	}
}

// Details returns the Info.Details of the present process; nil while there is none.
func (f *Frontend) Details() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.details
}

// Await returns the Info.Details of the present process. While there is none, it waits for the next one, until ctx ends or
// the frontend is closed. It then returns nil.
func (f *Frontend) Await(ctx context.Context) map[string]string {
	f.mu.Lock()
	up := f.up
	f.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
	case <-f.life.Done():
	}
	return f.Details()
}

// Done returns a channel that is closed after Close. Without Restart it is also closed when the plugin has ended by itself.
func (f *Frontend) Done() <-chan struct{} { return f.done }

// Err returns why the frontend has ended, after Done; nil if it ended in order.
func (f *Frontend) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Close asks the plugin to drain, which ctx bounds, and ends it. Idempotent. It returns the error of Err, or of the drain.
func (f *Frontend) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closing == nil {
		f.closing = ctx
	}
	f.mu.Unlock()
	f.endLife(executor.Errorf(executor.Unavailable, "the host is closed"))
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != nil {
		f.err = errors.Join(f.err, f.dir.close())
		f.dir = nil
	}
	return f.err
}
