package plugin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

const (
	defaultPingInterval = 15 * time.Second
	defaultPingTimeout  = 60 * time.Second
	// exitGrace is how long a drained plugin gets to exit.
	exitGrace = 2 * time.Second
)

// defaultCutGrace is the CutGrace of LaunchOptions without one. Only tests change it.
var defaultCutGrace = 3 * time.Second

// Process is one running plugin process.
type Process struct {
	dir         string
	process     *process
	logs        *logPump
	client      *goplugin.Client
	supervision *wire.Supervision
	backend     wire.Backend
	gate        gate
	dispensed   *dispensed
	log         *slog.Logger
	cutGrace    time.Duration

	done     chan struct{}
	stop     context.CancelCauseFunc // ends the pings
	killOnce sync.Once

	mu      sync.Mutex
	drained bool
	reason  error
}

// Orderly reports whether the plugin cleaned up: it was drained, or it exited with status 0, which says that nothing was
// left. Call it after Kill.
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
		dispensed: d,
		log:       l.logs.log,
		cutGrace:  cmp.Or(l.options.CutGrace, defaultCutGrace),
		done:      make(chan struct{}),
	}
	p.backend = NewBackend(func() (*Process, error) { return p, nil })
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

// Info returns the Info that the plugin sent when it was ready.
func (p *Process) Info() executor.Info { return p.supervision.Info() }

// PID returns the number of the process.
func (p *Process) PID() int { return p.process.cmd.Process.Pid }

// Health asks the gRPC health service of the process for go-plugin's service, "plugin". Codes: those of gRPC, internal (it does
// not serve).
func (p *Process) Health(ctx context.Context) error {
	answer, err := healthpb.NewHealthClient(p.dispensed.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	if err == nil && answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		err = executor.Errorf(executor.Internal, "the health of %s must be SERVING (got %s)", goplugin.GRPCServiceName, answer.GetStatus())
	}
	return err
}

// Ping returns when the plugin has answered a ping. Only one Ping may be under way, and the process sends pings by itself, every
// LaunchOptions.PingInterval. Codes: unavailable.
func (p *Process) Ping(ctx context.Context) error { return p.supervision.Ping(ctx) }

// Cut breaks the supervising stream, as the death of the host does.
func (p *Process) Cut() { p.supervision.Cut() }

// Done returns a channel that is closed when the process is gone or its supervising stream has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns why Done was closed. It is nil after a drain.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// watch closes done when the plugin is gone. It kills a plugin that does not answer a ping.
func (p *Process) watch(ctx context.Context, interval, timeout time.Duration) {
	defer close(p.done)
	defer p.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is gone"))
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
			pings = nil // the plugin drains
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

// Drain refuses new calls, waits until the calls under way have ended, and asks the plugin to close its backend. It returns
// the error of that. ctx bounds the drain. Call Kill afterwards in any case.
func (p *Process) Drain(ctx context.Context) error {
	p.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is stopping"))
	// The half-close waits for the calls under way. Right after a new Run it would overtake that Run.
	if err := p.gate.wait(ctx); err != nil {
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

// Kill ends the process and removes its folder. A plugin that was not drained gets a few seconds to end its calls.
// Idempotent.
func (p *Process) Kill() {
	p.killOnce.Do(func() {
		p.gate.shut(executor.Errorf(executor.Unavailable, "the plugin is gone"))
		p.mu.Lock()
		drained := p.drained
		p.mu.Unlock()
		if !drained {
			p.supervision.Cut()
			p.awaitExit(p.cutGrace)
			p.process.kill()
		}
		// go-plugin asks the plugin to shut down and waits without a bound. A plugin that does not shut down is killed meanwhile.
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

// awaitExit waits for the end of the process, at most for limit.
func (p *Process) awaitExit(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.process.exited:
	case <-timer.C:
	}
}
