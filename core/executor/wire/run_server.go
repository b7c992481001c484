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

// runServer is the backend's side of one Run, and the Sink that the backend gets.
type runServer struct {
	stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse]
	cancel context.CancelCauseFunc
	inputs *inputs
	// acks holds one acknowledgement: the next event is sent after it was taken.
	acks chan *pb.RunAck
	// gone is closed when the caller is gone.
	gone chan struct{}

	sending sync.Mutex
	// over is set, under sending, when the handler returns. The stream must not be used after that.
	over bool
	// turn is held for the whole of an Emit or Artifact: the caller's sink takes one goroutine at a time.
	turn sync.Mutex
}

var _ executor.TrailingSink = (*runServer)(nil)

func newRunServer(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse], cancel context.CancelCauseFunc, in *inputs) *runServer {
	return &runServer{stream: stream, cancel: cancel, inputs: in, acks: make(chan *pb.RunAck, 1), gone: make(chan struct{})}
}

func (r *runServer) send(m *pb.RunResponse) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	if r.over {
		return errRunEnded()
	}
	return r.stream.Send(m)
}

// receive is the only reader of the stream. It blocks on nothing else, so that a cancel and an acknowledgement arrive
// whatever the backend does.
func (r *runServer) receive() {
	err := r.dispatch()
	if err == nil {
		err = executor.ErrCallerGone
	}
	r.cancel(err)
	r.inputs.end(err)
	close(r.gone)
}

// dispatch returns nil when the stream has ended, and an error when the caller breaks the protocol.
func (r *runServer) dispatch() error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return nil
		}
		switch m := m.GetMessage().(type) {
		case *pb.RunRequest_Ack:
			select {
			case r.acks <- m.Ack:
			default:
				return executor.Errorf(executor.Invalid, "unexpected acknowledgement")
			}
		case *pb.RunRequest_Cancel:
			r.cancel(context.Canceled)
		case *pb.RunRequest_Start:
			return executor.Errorf(executor.Invalid, "duplicate start")
		}
	}
}

// sinkError is an error of the caller's sink. When the backend returns it, the caller gets its own error and not a copy.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

// Emit implements executor.Sink. It returns when the caller's sink has returned.
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

// Trail implements executor.TrailingSink. The caller returns the Result when its sink has returned. An error of the sink
// takes the place of the Result.
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

// sendError returns the error that the backend gets when a message cannot be sent.
func (r *runServer) sendError(err error) error {
	if _, ok := errors.AsType[*executor.Error](err); ok {
		return err
	}
	return r.lost()
}

// lost returns the error that the backend's calls return once the caller is gone. The backend's ctx has ended for the same
// reason then, so that a backend that looks only at its ctx does not take the error for one of the sink.
func (r *runServer) lost() error {
	r.cancel(executor.ErrCallerGone)
	return executor.ErrCallerGone
}

func errRunEnded() error {
	return executor.Errorf(executor.Internal, "the run has ended: its sink is closed")
}

// acknowledged waits for the acknowledgement if ack is nil, and returns the error of the caller's sink.
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

// Artifact implements executor.Sink. It stops sending when the caller's sink has returned early.
func (r *runServer) Artifact(h *tar.Header, content io.Reader) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := r.send(&pb.RunResponse{Message: &pb.RunResponse_ArtifactBegin{ArtifactBegin: to[pb.ArtifactBegin](*h)}}); err != nil {
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

// sendArtifact sends content in chunks. It returns the acknowledgement if that comes before the end of content.
func (r *runServer) sendArtifact(content io.Reader) (ack *pb.RunAck, err error) {
	err = inPieces(content, func(data []byte) error {
		select {
		case ack = <-r.acks:
			return errStreamEnded
		case <-r.gone:
			return errStreamEnded
		default:
		}
		if r.send(&pb.RunResponse{Message: &pb.RunResponse_ArtifactData{ArtifactData: data}}) != nil {
			return errStreamEnded // the caller is gone; the next send returns why
		}
		return nil
	})
	if errors.Is(err, errStreamEnded) {
		err = nil
	}
	return ack, err
}

// finish sends the result or the error of the backend.
func (r *runServer) finish(result executor.Result, err error) error {
	m := &pb.RunResponse{Message: &pb.RunResponse_Result{Result: to[pb.Result](result)}}
	if err != nil {
		_, sink := errors.AsType[*sinkError](err)
		m.Message = &pb.RunResponse_Failure{Failure: &pb.RunFailure{Error: toError(err), Sink: sink}}
	}
	return r.send(m)
}

// close closes the sink and the sources before the handler returns.
func (r *runServer) close() {
	r.inputs.end(executor.Errorf(executor.Internal, "the run has ended: its sources are closed"))
	r.sending.Lock()
	r.over = true
	r.sending.Unlock()
}
