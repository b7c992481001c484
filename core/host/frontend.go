package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// FrontendOptions say which frontend plugin to run, and how.
type FrontendOptions struct {
	// Name of the frontend, which begins the fields of its configuration errors ("mcp").
	Name string
	// Path and Args start it.
	Path string
	Args []string
	// Options is its configuration, as JSON. Files are its descriptors 3, 4, …; only without Restart.
	Options json.RawMessage
	Files   []*os.File
	// RunDir is as in Options of a Host. Instance and Embedded too.
	RunDir   string
	Instance string
	Embedded bool
	// Restart starts it again, with pauses, when it dies. Without, its end is the end.
	Restart bool
	// Log takes its log; nil drops it.
	Log *slog.Logger

	// steady is steadyTime; only tests set it.
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
	err     error
	closing context.Context
}

// StartFrontend launches the plugin and has it serve svc. ctx bounds the start only. Codes: as plugin.Launch.
func StartFrontend(ctx context.Context, o FrontendOptions, svc executor.Service) (*Frontend, error) {
	f := &Frontend{options: o, service: svc, log: o.Log, done: make(chan struct{})}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.log = f.log.With("frontend", o.Name)
	dir, err := openRunDir(o.RunDir, f.log)
	if err != nil {
		return nil, err
	}
	f.dir = dir
	first, err := f.launch(ctx)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	f.life, f.endLife = context.WithCancelCause(context.Background())
	go f.supervise(first)
	return f, nil
}

func (f *Frontend) launch(ctx context.Context) (*plugin.Frontend, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c := newCaller(f.service, f.log)
	p, err := plugin.LaunchFrontend(ctx, plugin.LaunchOptions{
		Path: f.options.Path, Args: f.options.Args, RunDir: f.dir.path, Files: f.options.Files,
		Configure: plugin.Configure{
			Name: f.options.Name, Instance: f.options.Instance, Embedded: f.options.Embedded, Options: f.options.Options,
		},
		Log: f.log,
	}, c)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.caller, f.details = p, c, p.Info().Details
	return p, nil
}

// supervise sees each process to its end.
func (f *Frontend) supervise(p *plugin.Frontend) {
	defer close(f.done)
	pauses := pauses{steady: cmp.Or(f.options.steady, steadyTime)}
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
		for uptime := time.Since(began); ; uptime = 0 {
			pause := pauses.next(uptime)
			f.log.Warn("frontend is started again", "pause", pause)
			if !rest(f.life, pause) {
				return
			}
			if p, err = f.launch(f.life); err == nil {
				break
			}
			f.log.Error("frontend does not start", "error", err)
		}
	}
}

// end leaves nothing of p and returns why it ended; nil: in order.
func (f *Frontend) end(p *plugin.Frontend) error {
	f.mu.Lock()
	ctx, c := f.closing, f.caller
	f.current, f.caller, f.details = nil, nil, nil
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

// Details are what the present process said of itself when it was ready; nil while there is none.
func (f *Frontend) Details() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.details
}

// Done is closed when it serves no more: after Close, or, without Restart, when it has ended by itself.
func (f *Frontend) Done() <-chan struct{} { return f.done }

// Err says why, after Done; nil: in order.
func (f *Frontend) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Close has it drain, bounded by ctx, and ends it. Idempotent. It returns what Err does, or why the draining failed.
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
