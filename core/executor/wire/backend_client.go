package wire

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// cancelGrace is how long, beyond the kill grace, a cancelled Run waits for its Result before it cuts the call.
const cancelGrace = 10 * time.Second

// BackendOption changes how NewBackend's Backend speaks to the other side.
type BackendOption func(*backendClient)

// Streams lets a peer that shares our files have large workspaces over unix sockets in dir, which is much cheaper than in
// messages. Whoever may enter dir can read them, so it must be private. It is not needed: without it, and where a
// socket cannot be made, messages do as well.
func Streams(dir string) BackendOption {
	return func(b *backendClient) { b.streams = dir }
}

// NewBackend returns the Backend that is served at the other end of conn. It also implements executor.SessionBackend,
// whose methods answer unimplemented where the other side does not. conn stays the caller's.
func NewBackend(conn grpc.ClientConnInterface, options ...BackendOption) executor.Backend {
	b := &backendClient{
		backend:  pb.NewBackendServiceClient(conn),
		sessions: pb.NewSessionBackendServiceClient(conn),
	}
	for _, option := range options {
		option(b)
	}
	return b
}

type backendClient struct {
	backend  pb.BackendServiceClient
	sessions pb.SessionBackendServiceClient
	// streams is the folder for sockets; empty: none.
	streams string

	mu sync.Mutex
	// localPath is Capabilities.LocalPath; nil until asked.
	localPath *bool
}

var (
	_ executor.Backend        = (*backendClient)(nil)
	_ executor.SessionBackend = (*backendClient)(nil)
)

// Info implements executor.Backend.
func (b *backendClient) Info(ctx context.Context) (executor.Info, error) {
	resp, err := b.backend.Info(outgoing(ctx), &pb.InfoRequest{})
	if err != nil {
		return executor.Info{}, fromStatus(ctx, err)
	}
	info := fromInfo(resp.GetInfo())
	b.mu.Lock()
	b.localPath = &info.Capabilities.LocalPath
	b.mu.Unlock()
	return info, nil
}

// sharesFiles reports whether the other side can open our files by name. It asks once.
func (b *backendClient) sharesFiles(ctx context.Context) bool {
	b.mu.Lock()
	known := b.localPath
	b.mu.Unlock()
	if known != nil {
		return *known
	}
	info, err := b.Info(ctx)
	return err == nil && info.Capabilities.LocalPath
}

// Run implements executor.Backend.
func (b *backendClient) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	return b.run(ctx, job, nil, sink)
}

// Attach implements executor.Backend.
func (b *backendClient) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	return b.run(ctx, job, toResume(r), sink)
}

func (b *backendClient) run(ctx context.Context, job executor.Job, resume *pb.Resume, sink executor.Sink) (executor.Result, error) {
	// The call outlives ctx: its end is told in band, and the Result still comes back.
	callCtx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	start := &pb.RunStart{Job: toJob(job), Resume: resume, Cancelled: ctx.Err() != nil}
	bulky := b.streams != "" && isBulky(job.Workspace)
	local := bulky || hasPath(job.Workspace) || hasPath(job.Stdin)
	if local {
		local = b.sharesFiles(callCtx)
	}
	start.Job.Workspace = announce(job.Workspace, local)
	start.Job.Stdin = announce(job.Stdin, local)
	var bulk *stream
	if bulky && local {
		if bulk = offer(b.streams); bulk != nil {
			start.Job.Workspace.Stream = bulk.path
		}
	}

	stream, err := b.backend.Run(outgoing(callCtx))
	if err != nil {
		bulk.close()
		cut(nil)
		return executor.Result{}, fromStatus(callCtx, err)
	}
	c := &runCall{stream: stream, ctx: callCtx, sink: sink, deliveries: make(chan any, 1)}
	c.feeder = newFeeder(job.Workspace, job.Stdin, bulk, func(r *pb.SourceReply) error {
		return c.send(&pb.RunRequest{Message: &pb.RunRequest_Source{Source: r}})
	})
	defer func() {
		cut(nil)
		c.wg.Wait()
		c.feeder.stop()
	}()
	if err := c.send(&pb.RunRequest{Message: &pb.RunRequest_Start{Start: start}}); err != nil {
		// The reason is what the stream says.
		if _, recvErr := stream.Recv(); recvErr != nil {
			err = recvErr
		}
		return executor.Result{}, fromStatus(callCtx, err)
	}
	defer c.watch(ctx, job.Limits.KillGrace+cancelGrace, cut)()
	if job.Workspace == nil && job.Stdin == nil {
		return c.follow()
	}
	c.wg.Go(func() { c.receive(nil) })
	return c.deliver()
}

func hasPath(s *executor.Source) bool { return s != nil && s.Path != "" }

// Remove implements executor.Backend.
func (b *backendClient) Remove(ctx context.Context, id string) error {
	_, err := b.backend.Remove(outgoing(ctx), &pb.RemoveRequest{Id: id})
	return fromStatus(ctx, err)
}
