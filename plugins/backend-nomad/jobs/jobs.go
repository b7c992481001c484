// Package jobs runs each Execution as a batch job of Nomad: the mode job of the Nomad backend.
//
// The runner and the input come to the node as artifacts, which the plugin serves (transfer), or in the job itself if they are small. The
// runner writes what happens into a file of the allocation, which the plugin follows through Nomad's API (tail). One event stream tells
// about all jobs (watcher). What is known of a job is in Nomad: a plugin that starts again goes on with the jobs that it finds.
package jobs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// Options are what New needs.
type Options struct {
	// Client is the client of Nomad's API. The backend does not close it.
	Client *api.Client
	// Config is valid.
	Config Config
	// Configure is what the plugin was started with.
	Configure plugin.Configure
}

// Backend runs Executions as jobs of Nomad. It implements executor.Backend and io.Closer.
type Backend struct {
	name, instance string
	config         Config
	embedded       bool
	log            *slog.Logger
	cluster        *cluster
	watcher        *watcher
	transfer       *transfer
	program        program
	images         imagename.AllowList
	running        backend.Jobs
	ended          sync.Map // the ids of Executions, not removed yet, whose runner has written its last record
	purged         atomic.Int64
	temporary      string // a data folder that ends with this backend; empty: there is a lasting one
	// feedPatience is how long a standard input may take to end, so that it is in the job and needs no task of its own.
	feedPatience time.Duration

	stop context.CancelCauseFunc
	wg   sync.WaitGroup
}

var _ executor.Backend = (*Backend)(nil)

// New returns the backend. It makes no request to Nomad, so that a backend may start while Nomad is away. Codes: invalid, unavailable,
// internal.
func New(_ context.Context, o Options) (executor.Backend, error) {
	p, err := runnerProgram()
	if err != nil {
		return nil, err
	}
	b, err := newBackend(o, p)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newBackend(o Options, p program) (_ *Backend, err error) {
	log := o.Configure.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		name: o.Configure.Name, instance: o.Configure.Instance, config: o.Config, embedded: o.Configure.Embedded, log: log,
		cluster: newCluster(o.Client), program: p, feedPatience: feedPatience,
	}
	section := "backends." + b.name + ".job"
	if b.images, err = imagename.NewAllowList(b.config.Images, b.config.DefaultImage, section+".images"); err != nil {
		return nil, err
	}
	folder := filepath.Join(o.Configure.DataDir, "jobs")
	if o.Configure.DataDir == "" || b.embedded {
		if folder, err = os.MkdirTemp("", "python-executor-nomad-"); err != nil {
			return nil, executor.Errorf(executor.Internal, "data folder: %w", err)
		}
		b.temporary = folder
	}
	if b.transfer, err = newTransfer(b.config.Transfer, folder, p.content, log); err != nil {
		return nil, errors.Join(err, b.clear())
	}
	b.watcher = newWatcher(b.cluster, log)
	ctx, stop := context.WithCancelCause(context.Background())
	b.stop = stop
	b.wg.Go(func() { b.watcher.run(ctx) })
	b.wg.Go(func() { b.reap(ctx) })
	return b, nil
}

// clear removes a temporary data folder.
func (b *Backend) clear() error {
	if b.temporary == "" {
		return nil
	}
	return os.RemoveAll(b.temporary)
}

// Close leaves the jobs to the next backend, which may Attach to them. An embedded backend stops them. Close is idempotent; afterwards
// Run returns unavailable.
func (b *Backend) Close() error {
	cause := executor.ErrCallerGone
	if b.embedded {
		cause = backend.ErrClosed
	}
	if !b.running.Close(cause) {
		return nil
	}
	b.stop(backend.ErrClosed)
	b.wg.Wait()
	err := errors.Join(b.transfer.close(), b.clear())
	b.cluster.client.Close() // its idle connections
	return err
}
