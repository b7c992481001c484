package wire_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

func TestASourceIsOpenedAgainAfterAnEarlyClose(t *testing.T) {
	t.Parallel()
	s := &tracked{make: func() (io.Reader, error) { return patterned(3 << 20), nil }}
	err := runWith(t, s.source(), nil, func(job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			return err
		}
		if _, err := job.Workspace.Open(); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a second opening beside the first: %v", err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			return err
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Error("a closed source is read")
		}
		if got := readAll(t, job.Workspace); got != digest(t, patterned(3<<20)) {
			t.Errorf("the second opening: %s", got)
		}
		return nil
	})
	if err != nil || s.opened.Load() != 2 || s.closed.Load() != 2 {
		t.Errorf("%v, opened %d, closed %d", err, s.opened.Load(), s.closed.Load())
	}
}

func TestASourceThatCannotBeClosedHoldsNoCallUp(t *testing.T) {
	t.Parallel()
	// Neither Read nor Close of this source returns before the end of the test.
	released := make(chan struct{})
	source := &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return stuck(released), nil }}
	if err := runWith(t, nil, source, func(job executor.Job) error {
		r, err := job.Stdin.Open()
		if err != nil {
			return err
		}
		return r.Close()
	}); err != nil {
		t.Error(err)
	}
	close(released)
}

type stuck chan struct{}

func (s stuck) Read([]byte) (int, error) {
	<-s
	return 0, io.EOF
}

func (s stuck) Close() error {
	<-s
	return nil
}

func TestASlowReaderHoldsUpItsSourceAlone(t *testing.T) {
	t.Parallel()
	var sent, held atomic.Int64
	endless := &tracked{make: func() (io.Reader, error) {
		return iterReader(func(b []byte) (int, error) {
			sent.Add(int64(len(b)))
			return len(b), nil
		}), nil
	}}
	stdin := &tracked{make: func() (io.Reader, error) { return patterned(5 << 20), nil }}
	var backend executor.Backend
	backend = plugintest.Wire(t, &stub{run: func(_ context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
		r, err := job.Workspace.Open()
		if err != nil {
			return executor.Result{}, err
		}
		if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
			return executor.Result{}, err
		}
		awaittest.Settled(t, "what was sent", sent.Load)
		if got := readAll(t, job.Stdin); got != digest(t, patterned(5<<20)) {
			t.Errorf("the other source: %s", got)
		}
		if err := sink.Emit(output("x")); err != nil {
			return executor.Result{}, err
		}
		_, err = backend.(executor.SessionBackend).Variables(t.Context(), "other call") //nolint:forcetypeassert // it is what Wire returns
		if executor.CodeOf(err) != executor.Unimplemented {
			t.Errorf("another call: %v", err)
		}
		held.Store(sent.Load()) // what comes after the Close is dropped and not held up
		return succeeded, r.Close()
	}})
	if _, err := backend.Run(t.Context(), executor.Job{Workspace: endless.source(), Stdin: stdin.source()}, &recorder{t: t}); err != nil {
		t.Error(err)
	}
	// A window of gRPC, what is in its buffers, and a chunk on each side.
	if n := held.Load(); n > 4<<20 {
		t.Errorf("%d bytes were sent to a reader of one", n)
	}
}

func TestASourceWhoseStreamBreaksEndsTheCall(t *testing.T) {
	t.Parallel()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		pb.RegisterBackendServiceServer(s, &brokenFeeds{})
		pb.RegisterExecutorServiceServer(s, &brokenFeedsOfSubmit{})
		pb.RegisterSourceServiceServer(s, &brokenFeeds{})
	})
	source := (&tracked{make: func() (io.Reader, error) { return patterned(1), nil }}).source()
	_, err := wire.NewBackend(conn, nil, nil).Run(t.Context(), executor.Job{Stdin: source}, &recorder{t: t})
	if executor.CodeOf(err) != executor.Purged || !strings.Contains(err.Error(), "no such feed") {
		t.Errorf("run: %v", err)
	}
	_, err = wire.NewService(conn).Submit(t.Context(), executor.Spec{}, executor.Input{Stdin: source})
	if executor.CodeOf(err) != executor.Purged || !strings.Contains(err.Error(), "no such feed") {
		t.Errorf("submit: %v", err)
	}
}

// brokenFeeds ends every Feed with an error. Its Run waits for the end of the call.
type brokenFeeds struct {
	pb.UnimplementedBackendServiceServer
	pb.UnimplementedSourceServiceServer
}

func (*brokenFeeds) Feed(grpc.BidiStreamingServer[pb.FeedRequest, pb.FeedResponse]) error {
	return executor.Errorf(executor.Purged, "no such feed")
}

func (*brokenFeeds) Run(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

type brokenFeedsOfSubmit struct {
	pb.UnimplementedExecutorServiceServer
}

func (*brokenFeedsOfSubmit) Submit(_ *pb.SubmitRequest, stream grpc.ServerStreamingServer[pb.SubmitResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}
