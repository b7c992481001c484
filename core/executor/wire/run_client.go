package wire

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// runCall is the caller's side of one Run. The caller's goroutine receives, calls the sink and acknowledges, by turns.
type runCall struct {
	stream grpc.BidiStreamingClient[pb.RunRequest, pb.RunResponse]
	ctx    context.Context // of the call; the end of the caller's own ctx is a message
	sink   executor.Sink

	sending sync.Mutex
	sinkErr error
	// trailErr is the sink's error for an event that the other side does not wait for.
	trailErr error
	// unread is a message that follows an artifact which has not ended.
	unread *runMessage
	// err is why there are no more messages.
	err error
}

func (c *runCall) send(m *pb.RunRequest) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(m)
}

// receive returns the next message.
func (c *runCall) receive() (m *runMessage, err error) {
	if m, c.unread = c.unread, nil; m != nil {
		return m, nil
	}
	if c.err == nil {
		m = &runMessage{}
		c.err = c.stream.RecvMsg(m)
	}
	return m, c.err
}

// follow receives and calls the sink until the end of the stream.
func (c *runCall) follow() (executor.Result, error) {
	for {
		m, err := c.receive()
		if err != nil {
			return executor.Result{}, c.ended(err)
		}
		switch body := m.GetMessage().(type) {
		case *pb.RunResponse_Event:
			err := c.sink.Emit(fromEvent(body.Event))
			if body.Event.GetOutput() != nil && err == nil {
				m.release()
			}
			c.acknowledge(err)
		case *pb.RunResponse_Trailing:
			c.trail(body.Trailing)
		case *pb.RunResponse_ArtifactBegin:
			h := from[tar.Header](body.ArtifactBegin)
			c.acknowledge(c.sink.Artifact(&h, &pieces{next: c.nextOfArtifact}))
		case *pb.RunResponse_Result:
			if c.trailErr != nil {
				return executor.Result{}, c.trailErr
			}
			return from[executor.Result](body.Result), nil
		case *pb.RunResponse_Failure:
			return executor.Result{}, c.failed(body.Failure)
		}
		// The rest of an artifact that the sink did not read to its end is dropped.
	}
}

// watch tells the other side when the caller's ctx ends. It cuts the call if the Result does not come within patience.
// stop ends the call.
func (c *runCall) watch(ctx context.Context, patience time.Duration, cut context.CancelCauseFunc) (stop func()) {
	told := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(told)
		if errors.Is(context.Cause(ctx), executor.ErrCallerGone) {
			cut(executor.ErrCallerGone) // the other side must see the same as if this process had died
			return
		}
		// Why this cannot be sent is what Recv returns.
		_ = c.send(&pb.RunRequest{Message: &pb.RunRequest_Cancel{Cancel: &pb.RunCancel{}}})
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-timer.C:
			cut(executor.Errorf(executor.Unavailable, "no answer to a cancel within %s", patience))
		case <-c.ctx.Done():
		}
	})
	return func() {
		cut(nil)
		if !unwatch() {
			<-told
		}
	}
}

// trail gives the sink an event that only more trailing events and the Result follow. The first error of the sink takes
// the place of the Result. A sink that is itself on a wire lets the event trail there, too.
func (c *runCall) trail(e *pb.Event) {
	if c.trailErr != nil {
		return
	}
	if trailing, ok := c.sink.(executor.TrailingSink); ok {
		c.trailErr = trailing.Trail(fromEvent(e))
	} else {
		c.trailErr = c.sink.Emit(fromEvent(e))
	}
}

func (c *runCall) acknowledge(err error) {
	if err != nil {
		c.sinkErr = err
	}
	// Why this cannot be sent is what Recv returns.
	_ = c.send(&pb.RunRequest{Message: &pb.RunRequest_Ack{Ack: &pb.RunAck{Error: toError(err)}}})
}

// failed returns the error of a Run that the other side could not finish. An error that came from our sink is returned
// as the sink made it.
func (c *runCall) failed(f *pb.RunFailure) error {
	if f.GetSink() && c.sinkErr != nil {
		return c.sinkErr
	}
	if err := fromError(f.GetError()); err != nil {
		return err
	}
	return executor.Errorf(executor.Internal, "the backend's side failed without an error")
}

// ended returns the error of a Run whose stream ended with err, before a Result.
func (c *runCall) ended(err error) error {
	if errors.Is(err, io.EOF) {
		return executor.Errorf(executor.Internal, "the backend's side ended without a result")
	}
	return fromStatus(c.ctx, err)
}

// nextOfArtifact returns the next piece of the artifact that is on the stream.
func (c *runCall) nextOfArtifact() ([]byte, error) {
	m, err := c.receive()
	if err != nil {
		return nil, c.ended(err)
	}
	switch m := m.GetMessage().(type) {
	case *pb.RunResponse_ArtifactData:
		return m.ArtifactData, nil
	case *pb.RunResponse_ArtifactEnd:
		return nil, endOf(m.ArtifactEnd.GetError())
	}
	c.unread = m
	return nil, io.ErrUnexpectedEOF
}
