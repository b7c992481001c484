package plugin

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

const (
	defaultPingInterval = 15 * time.Second
	defaultPingTimeout  = 60 * time.Second
	// cutGrace is how long an undrained plugin gets to stop what it runs before it is killed; exitGrace how long a
	// drained one gets to exit.
	cutGrace  = 3 * time.Second
	exitGrace = 2 * time.Second
)

// Process is one running plugin process.
type Process struct {
	dir         string
	process     *process
	logs        *logPump
	client      *goplugin.Client
	supervision *wire.Supervision
	backend     *guarded
	dispensed   *dispensed
	log         *slog.Logger

	done     chan struct{}
	stop     context.CancelCauseFunc // ends the pings
	killOnce sync.Once

	mu      sync.Mutex
	drained bool
	reason  error
}

// Orderly reports whether the plugin cleaned up behind itself: it was drained, or it exited with status 0, which it does when
// everything has been given back. It is known after Kill.
func (p *Process) Orderly() bool {
	select {
	case <-p.process.exited:
	default:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained || p.process.err == nil
}

func newProcessHandle(l *launch, supervision *wire.Supervision, d *dispensed) *Process {
	p := &Process{
		dir: l.dir, process: l.process, logs: l.logs, client: l.client, supervision: supervision,
		backend:   &guarded{backend: wire.NewBackend(d.conn, wire.Streams(l.dir))},
		dispensed: d,
		log:       l.logs.log,
		done:      make(chan struct{}),
	}
	interval, timeout := l.options.PingInterval, l.options.PingTimeout
	if interval <= 0 {
		interval = defaultPingInterval
	}
	if timeout <= 0 {
		timeout = defaultPingTimeout
	}
	ctx, stop := context.WithCancelCause(context.Background())
	p.stop = stop
	go p.watch(ctx, interval, timeout)
	return p
}

// Backend returns the plugin's backend. Its methods answer unavailable once the process is gone or drains.
func (p *Process) Backend() executor.Backend { return p.backend }

// Info returns what the plugin said when it was ready.
func (p *Process) Info() executor.Info { return p.supervision.Info() }

// PID returns the process's number.
func (p *Process) PID() int { return p.process.cmd.Process.Pid }

// Done is closed when the process is gone, or its stream has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why Done was closed; nil after a drain.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// watch closes done when the plugin is gone. A plugin that is there and does not answer is killed.
func (p *Process) watch(ctx context.Context, interval, timeout time.Duration) {
	defer close(p.done)
	defer p.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is gone"))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	pings := ticker.C
	for {
		select {
		case <-p.supervision.Done():
			p.end(p.supervision.Err())
			return
		case <-p.process.exited:
			p.end(executor.Errorf(executor.Unavailable, "the plugin exited"))
			return
		case <-ctx.Done():
			pings = nil // it drains
			ctx = context.Background()
		case <-pings:
			pingCtx, cancel := context.WithTimeout(ctx, timeout)
			err := p.supervision.Ping(pingCtx)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				p.log.Error("plugin does not answer; killed", "pid", p.PID(), "timeout", timeout)
				p.process.kill()
				p.supervision.Cut()
			}
		}
	}
}

func (p *Process) end(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = reason
}

// Drain refuses new calls, waits until the running ones have ended, and has the plugin close its backend, whose error it
// returns. ctx bounds it. Kill follows in any case.
func (p *Process) Drain(ctx context.Context) error {
	p.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	// The half-close comes when nothing of ours runs: one right behind a new run would overtake it (prototypes.md §2).
	if err := p.backend.gate.wait(ctx); err != nil {
		return err
	}
	p.stop(nil)
	err := p.supervision.Drain(ctx)
	if err == nil || executor.CodeOf(err) != executor.Unavailable {
		p.mu.Lock()
		p.drained = true
		p.mu.Unlock()
	}
	return err
}

// Kill ends the process and removes its folder. A plugin that was not drained first gets a few seconds to stop what it
// runs. Idempotent.
func (p *Process) Kill() {
	p.killOnce.Do(func() {
		p.backend.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is gone"))
		p.mu.Lock()
		drained := p.drained
		p.mu.Unlock()
		if !drained {
			p.supervision.Cut()
			p.awaitExit(cutGrace)
			p.process.kill()
		}
		// go-plugin asks a plugin that is there to shut down, without a bound: one that does not is killed meanwhile.
		closed := make(chan struct{})
		go func() {
			p.client.Kill()
			close(closed)
		}()
		p.awaitExit(exitGrace)
		p.process.kill()
		<-closed
		<-p.process.exited
		<-p.logs.done
		p.stop(nil)
		p.supervision.Cut()
		<-p.done
		if err := os.RemoveAll(p.dir); err != nil {
			p.log.Error("remove the plugin's run folder", "error", err)
		}
	})
}

// awaitExit waits for the process's end, at most for limit.
func (p *Process) awaitExit(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.process.exited:
	case <-timer.C:
	}
}
