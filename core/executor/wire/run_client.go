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

// runCall is the caller's side of one Run. The caller's goroutine calls the sink. As long as there are only events it
// receives them itself; with a source or an artifact another goroutine receives, and one per opened source feeds it.
type runCall struct {
	stream grpc.BidiStreamingClient[pb.RunRequest, pb.RunResponse]
	ctx    context.Context // of the call; the caller's is told in band
	sink   executor.Sink
	feeder *feeder
	wg     sync.WaitGroup

	sending sync.Mutex
	// deliveries go from the receiving goroutine to the caller's: *pb.Event, *incomingArtifact, and last an ending. Its
	// capacity of one is enough: nothing follows an event or artifact before its acknowledgement, but the ending, and before
	// that events that nobody waits for.
	deliveries chan any
	sinkErr    error
	// trailErr is what the sink made of events that the other side does not wait for.
	trailErr error
}

// ending is how the stream ended.
type ending struct {
	result *pb.Result
	// failure is the backend's error, err the call's.
	failure *pb.RunFailure
	err     error
}

func (c *runCall) send(m *pb.RunRequest) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(m)
}

// hand passes d to the caller's goroutine, unless the call is over.
func (c *runCall) hand(d any) {
	select {
	case c.deliveries <- d:
	case <-c.ctx.Done():
	}
}

// follow receives and calls the sink by turns. It is for a job without sources: nothing can then be asked for while the
// sink takes its time.
func (c *runCall) follow() (executor.Result, error) {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return c.finish(ending{err: err})
		}
		switch body := m.GetMessage().(type) {
		case *pb.RunResponse_Event:
			c.acknowledge(c.sink.Emit(fromEvent(body.Event)))
		case *pb.RunResponse_Trailing:
			c.trail(body.Trailing)
		case *pb.RunResponse_Result:
			return c.finish(ending{result: body.Result})
		case *pb.RunResponse_Failure:
			return c.finish(ending{failure: body.Failure})
		default:
			c.wg.Go(func() { c.receive(m) })
			return c.deliver()
		}
	}
}

// receive is the only reader of the stream from here on; m was read already, if it is not nil. Only an artifact's data
// can hold it up, as long as the sink does not read.
func (c *runCall) receive(m *pb.RunResponse) {
	var artifact *incomingArtifact
	var err error
	for ; ; m = nil {
		if m == nil {
			m, err = c.stream.Recv()
		}
		if err != nil {
			artifact.end(fromStatus(c.ctx, err))
			c.hand(ending{err: err})
			return
		}
		switch m := m.GetMessage().(type) {
		case *pb.RunResponse_Event:
			c.hand(m.Event)
		case *pb.RunResponse_Trailing:
			c.hand(trailing{m.Trailing})
		case *pb.RunResponse_ArtifactBegin:
			artifact.end(io.ErrUnexpectedEOF)
			artifact = newIncomingArtifact(m.ArtifactBegin)
			c.hand(artifact)
		case *pb.RunResponse_ArtifactData:
			artifact.data(c.ctx, m.ArtifactData)
		case *pb.RunResponse_ArtifactEnd:
			err := fromError(m.ArtifactEnd.GetError())
			if err == nil {
				err = io.EOF
			}
			artifact.end(err)
			artifact = nil
		case *pb.RunResponse_Source:
			c.feeder.handle(m.Source)
		case *pb.RunResponse_Result:
			artifact.end(io.ErrUnexpectedEOF)
			c.hand(ending{result: m.Result})
			return
		case *pb.RunResponse_Failure:
			artifact.end(io.ErrUnexpectedEOF)
			c.hand(ending{failure: m.Failure})
			return
		}
	}
}

// watch tells the other side when the caller's ctx ends, and cuts the call if no answer comes. The call is over when stop
// is called.
func (c *runCall) watch(ctx context.Context, patience time.Duration, cut context.CancelCauseFunc) (stop func()) {
	told := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(told)
		if errors.Is(context.Cause(ctx), executor.ErrCallerGone) {
			cut(executor.ErrCallerGone) // the other side shall see what a death of ours looks like
			return
		}
		// If this cannot be sent, the stream is at its end, and receive sees it.
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

// deliver calls the sink with what arrives, until the end.
func (c *runCall) deliver() (executor.Result, error) {
	for {
		var d any
		select {
		case d = <-c.deliveries:
		case <-c.ctx.Done():
			return executor.Result{}, context.Cause(c.ctx)
		}
		switch d := d.(type) {
		case *pb.Event:
			c.acknowledge(c.sink.Emit(fromEvent(d)))
		case trailing:
			c.trail(d.Event)
		case *incomingArtifact:
			err := c.sink.Artifact(d.header, d)
			d.abandon()
			c.acknowledge(err)
		case ending:
			return c.finish(d)
		}
	}
}

// trailing is an event that the other side does not wait for.
type trailing struct{ *pb.Event }

// trail gives the sink what nothing follows but more of its kind and the Result. What is wrong with it comes in place of
// that.
func (c *runCall) trail(e *pb.Event) {
	if c.trailErr == nil {
		c.trailErr = c.sink.Emit(fromEvent(e))
	}
}

func (c *runCall) acknowledge(err error) {
	if err != nil {
		c.sinkErr = err
	}
	// If this cannot be sent, the stream is at its end, and receive sees it.
	_ = c.send(&pb.RunRequest{Message: &pb.RunRequest_Ack{Ack: &pb.RunAck{Error: toError(err)}}})
}

func (c *runCall) finish(e ending) (executor.Result, error) {
	switch {
	case e.result != nil && c.trailErr != nil:
		return executor.Result{}, c.trailErr
	case e.result != nil:
		return fromResult(e.result), nil
	case e.failure.GetSink() && c.sinkErr != nil:
		return executor.Result{}, c.sinkErr
	case e.failure != nil:
		return executor.Result{}, failureError(e.failure)
	case errors.Is(e.err, io.EOF):
		return executor.Result{}, executor.Errorf(executor.Internal, "the backend's side ended without a result")
	default:
		return executor.Result{}, fromStatus(c.ctx, e.err)
	}
}

func failureError(f *pb.RunFailure) error {
	if err := fromError(f.GetError()); err != nil {
		return err
	}
	return executor.Errorf(executor.Internal, "the backend's side failed without an error")
}

// incomingArtifact is the reader that the sink gets.
type incomingArtifact struct {
	header *tar.Header
	chunks chan []byte
	// gone is closed when the sink has returned and reads no more.
	gone chan struct{}
	rest []byte
	// err is set before chunks is closed.
	err error
}

func newIncomingArtifact(h *pb.ArtifactBegin) *incomingArtifact {
	return &incomingArtifact{header: fromHeader(h), chunks: make(chan []byte), gone: make(chan struct{})}
}

// data hands a chunk to the sink, or drops it when the sink has returned. a may be nil: data without a begin is dropped.
func (a *incomingArtifact) data(ctx context.Context, chunk []byte) {
	if a == nil || len(chunk) == 0 {
		return
	}
	select {
	case a.chunks <- chunk:
	case <-a.gone:
	case <-ctx.Done():
	}
}

func (a *incomingArtifact) end(err error) {
	if a != nil {
		a.err = err
		close(a.chunks)
	}
}

func (a *incomingArtifact) abandon() { close(a.gone) }

// Read implements io.Reader.
func (a *incomingArtifact) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(a.rest) == 0 {
		chunk, ok := <-a.chunks
		if !ok {
			return 0, a.err
		}
		a.rest = chunk
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}
