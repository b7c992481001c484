package wire_test

import (
	"archive/tar"
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// A peer that does not keep to the protocol gets an error, and nobody else notices.
func TestACallerThatBreaksTheProtocolIsStopped(t *testing.T) {
	t.Parallel()
	start := &pb.RunRequest{Message: &pb.RunRequest_Start{Start: &pb.RunStart{Job: &pb.Job{Workspace: &pb.Source{}}}}}
	data := func(id uint64, n int) *pb.RunRequest {
		return &pb.RunRequest{Message: &pb.RunRequest_Source{Source: &pb.SourceReply{
			Id: id, Part: &pb.SourceReply_Data{Data: make([]byte, n)},
		}}}
	}
	ack := &pb.RunRequest{Message: &pb.RunRequest_Ack{Ack: &pb.RunAck{}}}
	cases := map[string][]*pb.RunRequest{
		"with two starts":                        {start, start},
		"with data of a source nobody opened":    {start, data(77, 1)},
		"with more data than credit":             {start, data(1, 1<<20), data(1, 1)},
		"with acknowledgements of nothing":       {start, ack, ack},
		"by leaving without a word":              {start},
		"with a message of a kind nobody knows":  {start, {}, {Message: &pb.RunRequest_Source{}}},
		"with a source reply that has no part":   {start, {Message: &pb.RunRequest_Source{Source: &pb.SourceReply{Id: 1}}}},
		"with a first message that is not start": {ack},
		"with a start without a job":             {{Message: &pb.RunRequest_Start{Start: &pb.RunStart{}}}},
	}
	for name, messages := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
				wire.RegisterBackend(s, &stub{run: func(ctx context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
					if r, err := job.Workspace.Open(); err == nil {
						defer func() { _ = r.Close() }()
					}
					<-ctx.Done()
					return killed, nil
				}})
			})
			stream, err := pb.NewBackendServiceClient(conn).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for n, m := range messages {
				if err := stream.Send(m); err != nil {
					break
				}
				if n == 0 && m == start {
					if _, err := stream.Recv(); err != nil { // the open request
						t.Fatal(err)
					}
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			for {
				m, err := stream.Recv()
				if err != nil {
					return // an end, in any case
				}
				if r := m.GetResult(); r != nil && r.GetStatus() != string(executor.StatusKilled) {
					t.Errorf("it went on: %v", r)
				}
			}
		})
	}
}

// evilServer answers Run with whatever it is told.
type evilServer struct {
	pb.UnimplementedBackendServiceServer
	messages []*pb.RunResponse
}

func (s *evilServer) Run(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	for _, m := range s.messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func TestABackendThatBreaksTheProtocolIsAnError(t *testing.T) {
	t.Parallel()
	event := &pb.RunResponse{Message: &pb.RunResponse_Event{Event: &pb.Event{}}}
	begin := &pb.RunResponse{Message: &pb.RunResponse_ArtifactBegin{ArtifactBegin: &pb.ArtifactBegin{Name: "a"}}}
	chunk := &pb.RunResponse{Message: &pb.RunResponse_ArtifactData{ArtifactData: []byte("x")}}
	end := &pb.RunResponse{Message: &pb.RunResponse_ArtifactEnd{}}
	open := &pb.RunResponse{Message: &pb.RunResponse_Source{Source: &pb.SourceRequest{
		Id: 1, Action: &pb.SourceRequest_Open{Open: &pb.SourceOpen{Name: "/etc/passwd", Credit: 1 << 40}},
	}}}
	cases := map[string][]*pb.RunResponse{
		"by ending without a result":            {},
		"with many events at once":              {event, event, event, event},
		"with an artifact that does not end":    {begin, chunk},
		"with an artifact in an artifact":       {begin, begin, end},
		"with data of no artifact":              {chunk, end, end},
		"by opening what nobody offered, twice": {open, open},
		"with messages of no known kind":        {{}, {}},
		"with a failure without an error":       {{Message: &pb.RunResponse_Failure{Failure: &pb.RunFailure{Sink: true}}}},
	}
	for name, messages := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
				pb.RegisterBackendServiceServer(s, &evilServer{messages: messages})
			})
			sink := &recorder{t: t, artifact: func(_ *tar.Header, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			}}
			if _, err := wire.NewBackend(conn).Run(t.Context(), executor.Job{}, sink); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestAPrincipalThatCannotBeReadIsUnauthenticated(t *testing.T) {
	t.Parallel()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { wire.RegisterBackend(s, &stub{}) })
	client := pb.NewBackendServiceClient(conn)
	const key = "pyexec-principal-bin"
	for name, ctx := range map[string]context.Context{
		"garbage": metadata.AppendToOutgoingContext(t.Context(), key, "\xff\xff\xff"),
		"two":     metadata.AppendToOutgoingContext(t.Context(), key, "", key, ""),
	} {
		_, err := client.Info(ctx, &pb.InfoRequest{})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := client.Info(t.Context(), &pb.InfoRequest{}); err != nil {
		t.Errorf("none at all is the local owner: %v", err)
	}
}

func TestAWriterThatBreaksTheProtocolWritesNothing(t *testing.T) {
	t.Parallel()
	target := &pb.FilePiece{Part: &pb.FilePiece_Target{Target: &pb.FileTarget{Id: "ctx-1", Path: "a", SizeBytes: -1}}}
	data := &pb.FilePiece{Part: &pb.FilePiece_Data{Data: []byte("abc")}}
	end := &pb.FilePiece{Part: &pb.FilePiece_End{End: &pb.FileEnd{}}}
	cases := map[string][]*pb.FilePiece{
		"without a message":         {},
		"with no piece":             {nil},
		"with data before a target": {data, end},
		"with two targets":          {target, target, data, end},
		"with an empty piece":       {target, data, {}, end},
		"without an end":            {target, data},
	}
	for name, messages := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &folder{
				admit: func(context.Context, string) error { return nil },
				write: func(_ context.Context, _ int64, r io.Reader) error {
					_, err := io.Copy(io.Discard, r)
					if err == nil {
						t.Error("it read a whole file")
					}
					return err
				},
			}
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { wire.RegisterBackend(s, &sessionStub{folder: f}) })
			stream, err := pb.NewSessionBackendServiceClient(conn).WriteFile(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if err := stream.Send(&pb.SessionBackendServiceWriteFileRequest{Piece: m}); err != nil {
					break
				}
			}
			if _, err := stream.CloseAndRecv(); err == nil {
				t.Error("it was taken")
			}
		})
	}
}
