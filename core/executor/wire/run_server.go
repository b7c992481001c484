package wire

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// runServer is the backend's side of one Run: the Sink that the backend gets, and what it needs to work.
type runServer struct {
	stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse]
	cancel context.CancelCauseFunc
	intake *intake
	// acks has room for one: nothing is sent that needs another before the last one is taken.
	acks chan *pb.RunAck
	// gone is closed when the caller is.
	gone chan struct{}

	sending sync.Mutex
	// over is set, under sending, when the handler returns: the stream must not be used after it.
	over bool
	// turn is held for the whole of an Emit or Artifact: the caller's sink knows one goroutine at a time.
	turn sync.Mutex
}

var _ executor.TrailingSink = (*runServer)(nil)

func newRunServer(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse], cancel context.CancelCauseFunc) *runServer {
	r := &runServer{stream: stream, cancel: cancel, acks: make(chan *pb.RunAck, 1), gone: make(chan struct{})}
	r.intake = newIntake(func(m *pb.SourceRequest) error {
		return r.send(&pb.RunResponse{Message: &pb.RunResponse_Source{Source: m}})
	})
	return r
}

func (r *runServer) send(m *pb.RunResponse) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	if r.over {
		return errRunEnded()
	}
	return r.stream.Send(m)
}

// receive is the only reader of the stream, and never blocks on anything else: so a cancel and an acknowledgement come
// through whatever the backend does.
func (r *runServer) receive() {
	err := r.dispatch()
	if err == nil {
		err = executor.ErrCallerGone
	}
	r.cancel(err)
	r.intake.fail(err)
	close(r.gone)
}

// dispatch returns nil when the stream has ended, and an error when the caller does not keep to the protocol.
func (r *runServer) dispatch() error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return nil
		}
		switch m := m.GetMessage().(type) {
		case *pb.RunRequest_Source:
			if err := r.intake.deliver(m.Source); err != nil {
				return err
			}
		case *pb.RunRequest_Ack:
			select {
			case r.acks <- m.Ack:
			default:
				return executor.Errorf(executor.Invalid, "an acknowledgement of nothing")
			}
		case *pb.RunRequest_Cancel:
			r.cancel(context.Canceled)
		case *pb.RunRequest_Start:
			return executor.Errorf(executor.Invalid, "a second start in one run")
		}
	}
}

// sinkError is what the caller's sink returned. It is recognised when the backend returns it, so that the caller gets
// its own error back, and not a copy.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

// Emit implements executor.Sink. It returns when the caller's sink has.
func (r *runServer) Emit(e executor.Event) error {
	m, err := toEvent(e)
	if err != nil {
		return err
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := r.send(&pb.RunResponse{Message: &pb.RunResponse_Event{Event: m}}); err != nil {
		return r.sendError(err)
	}
	return r.acknowledged(nil)
}

// Trail implements executor.TrailingSink: the caller returns the Result after its sink has returned, and the sink's error
// in place of it.
func (r *runServer) Trail(e executor.Event) error {
	m, err := toEvent(e)
	if err != nil {
		return err
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := r.send(&pb.RunResponse{Message: &pb.RunResponse_Trailing{Trailing: m}}); err != nil {
		return r.sendError(err)
	}
	return nil
}

// sendError is what the backend sees when it cannot reach the caller.
func (r *runServer) sendError(err error) error {
	if _, ok := errors.AsType[*executor.Error](err); ok {
		return err
	}
	return r.lost()
}

// lost is what the backend's calls return once the caller is gone. Its ctx has ended for that reason then, whichever of the
// two shows first: a backend that only looks at its ctx must not take it for an error of the sink.
func (r *runServer) lost() error {
	r.cancel(executor.ErrCallerGone)
	return executor.ErrCallerGone
}

func errRunEnded() error {
	return executor.Errorf(executor.Internal, "the run has ended: its sink takes nothing more")
}

// acknowledged waits for the acknowledgement, unless it is there already, and returns what the caller's sink did.
func (r *runServer) acknowledged(ack *pb.RunAck) error {
	if ack == nil {
		select {
		case ack = <-r.acks:
		case <-r.gone:
			return r.lost()
		}
	}
	if err := fromError(ack.GetError()); err != nil {
		return &sinkError{err}
	}
	return nil
}

// Artifact implements executor.Sink. It sends no more when the caller's sink has returned early.
func (r *runServer) Artifact(h *tar.Header, content io.Reader) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := r.send(&pb.RunResponse{Message: &pb.RunResponse_ArtifactBegin{ArtifactBegin: toHeader(h)}}); err != nil {
		return r.sendError(err)
	}
	ack, readErr := r.sendArtifact(content)
	end := &pb.ArtifactEnd{}
	if readErr != nil {
		end.Error = toError(readErr)
	}
	if err := r.send(&pb.RunResponse{Message: &pb.RunResponse_ArtifactEnd{ArtifactEnd: end}}); err != nil {
		return r.sendError(err)
	}
	return r.acknowledged(ack)
}

// sendArtifact sends content in chunks. It ends early with the acknowledgement, if that came before the end.
func (r *runServer) sendArtifact(content io.Reader) (*pb.RunAck, error) {
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			select {
			case ack := <-r.acks:
				return ack, nil
			case <-r.gone:
				return nil, nil
			default:
			}
			m := &pb.RunResponse{Message: &pb.RunResponse_ArtifactData{ArtifactData: buf[:n]}}
			if sendErr := r.send(m); sendErr != nil {
				return nil, nil // the caller is gone; the next send says so
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// finish sends what the backend returned.
func (r *runServer) finish(result executor.Result, err error) error {
	m := &pb.RunResponse{Message: &pb.RunResponse_Result{Result: toResult(result)}}
	if err != nil {
		_, sink := errors.AsType[*sinkError](err)
		m.Message = &pb.RunResponse_Failure{Failure: &pb.RunFailure{Error: toError(err), Sink: sink}}
	}
	return r.send(m)
}

// close ends the sink and the sources before the handler returns.
func (r *runServer) close() {
	r.intake.fail(executor.Errorf(executor.Internal, "the run has ended: its sources are closed"))
	r.sending.Lock()
	r.over = true
	r.sending.Unlock()
}
