package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// cancelGrace is how long, beyond the kill grace, a cancelled Run waits for its Result before it cuts the call.
const cancelGrace = 10 * time.Second

// Backend is what NewBackend returns.
type Backend interface {
	executor.Backend
	executor.SessionBackend
}

// NewBackend returns the Backend that is served at the other end of conn, which stays the caller's. The methods of
// executor.SessionBackend answer unimplemented where the other side has no sessions.
//
// localDir returns a folder of this machine in which a socket can be made, if the other side can open our files by name,
// else "". A large workspace then crosses on a socket, which is much cheaper than messages. Whoever may enter the folder
// can read the workspace, so it must be private. Where no socket can be made the workspace crosses in messages. A nil
// localDir says that the other side does not share our files.
//
// inline reports whether the other side takes the content of a small source in the message that announces it, which saves a stream. A
// nil inline says that it does not.
func NewBackend(conn grpc.ClientConnInterface, localDir func() string, inline func() bool) Backend {
	if localDir == nil {
		localDir = func() string { return "" }
	}
	if inline == nil {
		inline = func() bool { return false }
	}
	return &backendClient{
		sessionToolsClient: sessionToolsClient{pb.NewSessionToolsServiceClient(conn)},

		backend:  pb.NewBackendServiceClient(conn),
		sessions: pb.NewSessionBackendServiceClient(conn),
		sources:  pb.NewSourceServiceClient(conn),
		localDir: localDir,
		inline:   inline,
	}
}

type backendClient struct {
	sessionToolsClient
	backend  pb.BackendServiceClient
	sessions pb.SessionBackendServiceClient
	sources  pb.SourceServiceClient
	localDir func() string
	inline   func() bool
}

// Info implements executor.Backend.
func (b *backendClient) Info(ctx context.Context) (executor.Info, error) {
	resp, err := b.backend.Info(outgoing(ctx), &pb.InfoRequest{})
	return from[executor.Info](resp.GetInfo()), fromStatus(ctx, err)
}

// Run implements executor.Backend.
func (b *backendClient) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	return b.run(ctx, job, nil, sink)
}

// Attach implements executor.Backend.
func (b *backendClient) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	return b.run(ctx, job, to[pb.Resume](r), sink)
}

func (b *backendClient) run(ctx context.Context, job executor.Job, resume *pb.Resume, sink executor.Sink) (executor.Result, error) {
	// The call outlives ctx: the other side is told that ctx has ended, and the Result still comes back.
	callCtx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	feeder := newFeeder(callCtx, cut, b.sources)
	defer func() {
		cut(nil)
		feeder.stop()
	}()
	start := &pb.RunStart{Job: to[pb.Job](job), Resume: resume, Cancelled: ctx.Err() != nil}
	if err := b.announce(feeder, job, start.Job); err != nil {
		return executor.Result{}, err
	}
	stream, err := b.backend.Run(outgoing(callCtx))
	if err != nil {
		return executor.Result{}, fromStatus(callCtx, err)
	}
	c := &runCall{stream: stream, ctx: callCtx, sink: sink}
	// Why a message cannot be sent is what Recv returns.
	_ = c.send(&pb.RunRequest{Message: &pb.RunRequest_Start{Start: start}})
	defer c.watch(ctx, job.Limits.KillGrace+cancelGrace, cut)()
	return c.follow()
}

// announce puts the sources of job into out.
func (b *backendClient) announce(f *feeder, job executor.Job, out *pb.Job) (err error) {
	if job.Workspace == nil && job.Stdin == nil {
		return nil
	}
	dir := b.localDir()
	f.inline = b.inline()
	if out.Workspace, err = f.announce(job.Workspace, inChunks, dir); err != nil {
		return err
	}
	out.Stdin, err = f.announce(job.Stdin, atOnce, dir)
	return err
}

// Remove implements executor.Backend.
func (b *backendClient) Remove(ctx context.Context, id string) error {
	_, err := b.backend.Remove(outgoing(ctx), &pb.RemoveRequest{Id: id})
	return fromStatus(ctx, err)
}
