package wire_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// feedOf opens the Feed of key and sends what follows.
func feedOf(t *testing.T, conn grpc.ClientConnInterface, key string, messages ...*pb.FeedRequest) grpc.BidiStreamingClient[pb.FeedRequest, pb.FeedResponse] {
	t.Helper()
	stream, err := pb.NewSourceServiceClient(conn).Feed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append([]*pb.FeedRequest{{Message: &pb.FeedRequest_Key{Key: key}}}, messages...) {
		if err := stream.Send(m); err != nil {
			break
		}
	}
	return stream
}

func feedData(n int) *pb.FeedRequest {
	return &pb.FeedRequest{Message: &pb.FeedRequest_Data{Data: make([]byte, n)}}
}

// A peer that breaks the protocol gets an error, and no other call notices.
func TestACallerThatBreaksTheProtocolIsStopped(t *testing.T) {
	t.Parallel()
	start := &pb.RunRequest{Message: &pb.RunRequest_Start{Start: &pb.RunStart{Job: &pb.Job{Workspace: &pb.Source{Key: "k"}}}}}
	ack := &pb.RunRequest{Message: &pb.RunRequest_Ack{Ack: &pb.RunAck{}}}
	cases := map[string][]*pb.RunRequest{
		"with two starts":                        {start, start},
		"with acknowledgements of nothing":       {start, ack, ack},
		"by leaving without a word":              {start},
		"with a message of a kind nobody knows":  {start, {}},
		"with a first message that is not start": {ack},
		"with a start without a job":             {{Message: &pb.RunRequest_Start{Start: &pb.RunStart{}}}},
	}
	// These break nothing until the caller is gone.
	leaves := map[string]bool{"by leaving without a word": true, "with a message of a kind nobody knows": true}
	for name, messages := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
				wire.RegisterBackend(s, &stub{run: func(ctx context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
					r, err := job.Workspace.Open()
					if err != nil {
						t.Error(err)
						return killed, nil
					}
					defer func() { _ = r.Close() }()
					<-ctx.Done()
					want := executor.Invalid
					if leaves[name] {
						want = executor.CodeOf(executor.ErrCallerGone)
					}
					if cause := context.Cause(ctx); executor.CodeOf(cause) != want {
						t.Errorf("the run ended because of %v, want %s", cause, want)
					}
					if _, err := io.Copy(io.Discard, r); err == nil {
						t.Error("a source of a caller that is gone has an end")
					}
					return killed, nil
				}})
			})
			feed := feedOf(t, conn, "k")
			stream, err := pb.NewBackendServiceClient(conn).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for n, m := range messages {
				if err := stream.Send(m); err != nil {
					break
				}
				if n == 0 && m == start {
					if _, err := feed.Recv(); err != nil { // the source is open
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

func TestAFeedThatBreaksTheProtocolIsStopped(t *testing.T) {
	t.Parallel()
	end := &pb.FeedRequest{Message: &pb.FeedRequest_End{}}
	for name, c := range map[string]struct {
		key      string
		messages []*pb.FeedRequest
		// unopened: the messages come before the source is opened.
		unopened bool
	}{
		"without a key":           {key: ""},
		"with data unasked":       {key: "k", messages: []*pb.FeedRequest{feedData(1)}, unopened: true},
		"with data after the end": {key: "k", messages: []*pb.FeedRequest{end, feedData(1)}},
		"with a second key":       {key: "k", messages: []*pb.FeedRequest{{Message: &pb.FeedRequest_Key{Key: "k"}}}},
		"with an empty message":   {key: "k", messages: []*pb.FeedRequest{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken, read := make(chan struct{}), make(chan error, 1)
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
				wire.RegisterBackend(s, &stub{run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
					if c.unopened {
						<-broken
					}
					r, err := job.Workspace.Open()
					if err == nil {
						_, err = io.Copy(io.Discard, r)
						err = errors.Join(err, r.Close())
					}
					read <- err
					<-broken
					return succeeded, nil
				}})
			})
			feed := feedOf(t, conn, c.key)
			if c.key != "" {
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				if c.unopened {
					// The feed may be over before the run announces it. The end of the call then ends Open.
					go func() {
						<-broken
						leave(nil)
					}()
				}
				run, err := pb.NewBackendServiceClient(conn).Run(ctx)
				if err != nil {
					t.Fatal(err)
				}
				job := &pb.Job{Workspace: &pb.Source{Key: c.key}}
				if err := run.Send(&pb.RunRequest{Message: &pb.RunRequest_Start{Start: &pb.RunStart{Job: job}}}); err != nil {
					t.Fatal(err)
				}
				if !c.unopened {
					if _, err := feed.Recv(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, m := range c.messages {
				if err := feed.Send(m); err != nil {
					break
				}
			}
			var err error
			for err == nil {
				_, err = feed.Recv()
			}
			close(broken)
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("the feed ended with %v", err)
			}
			if c.key == "" {
				return
			}
			if err := <-read; (err == nil) != (name == "with data after the end") {
				t.Errorf("the source ended with %v", err)
			}
		})
	}
}

func TestASecondFeedOfASourceIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		wire.RegisterBackend(s, &stub{run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
			_, err := drainSource(job.Workspace)
			return succeeded, err
		}})
	})
	type received struct {
		feed grpc.BidiStreamingClient[pb.FeedRequest, pb.FeedResponse]
		err  error
	}
	answers := make(chan received, 2)
	for range 2 {
		feed := feedOf(t, conn, "k")
		go func() {
			_, err := feed.Recv()
			answers <- received{feed, err}
		}()
	}
	if refused := <-answers; status.Code(refused.err) != codes.FailedPrecondition {
		t.Errorf("the second feed ended with %v", refused.err)
	}
	run, err := pb.NewBackendServiceClient(conn).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := &pb.RunStart{Job: &pb.Job{Workspace: &pb.Source{Key: "k"}}}
	if err := run.Send(&pb.RunRequest{Message: &pb.RunRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	first := <-answers
	if first.err != nil {
		t.Fatalf("the first feed ended with %v", first.err)
	}
	if err := first.feed.Send(&pb.FeedRequest{Message: &pb.FeedRequest_End{}}); err != nil {
		t.Fatal(err)
	}
	if m, err := run.Recv(); err != nil || m.GetResult() == nil {
		t.Errorf("the run ended with %v, %v", m, err)
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
	cases := map[string][]*pb.RunResponse{
		"by ending without a result":         {},
		"with many events at once":           {event, event, event, event},
		"with an artifact that does not end": {begin, chunk},
		"with an artifact in an artifact":    {begin, begin, end},
		"with data of no artifact":           {chunk, end, end},
		"with an event in an artifact":       {begin, chunk, event},
		"with messages of no known kind":     {{}, {}},
		"with a failure without an error":    {{Message: &pb.RunResponse_Failure{Failure: &pb.RunFailure{Sink: true}}}},
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
			if _, err := wire.NewBackend(conn, nil, nil).Run(t.Context(), executor.Job{}, sink); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestAResultInTheMiddleOfAnArtifactIsTheResult(t *testing.T) {
	t.Parallel()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		pb.RegisterBackendServiceServer(s, &evilServer{messages: []*pb.RunResponse{
			{Message: &pb.RunResponse_ArtifactBegin{ArtifactBegin: &pb.ArtifactBegin{Name: "a", Size: 9}}},
			{Message: &pb.RunResponse_ArtifactData{ArtifactData: []byte("x")}},
			{Message: &pb.RunResponse_Result{Result: &pb.Result{Status: string(executor.StatusKilled)}}},
		}})
	})
	var end error
	sink := &recorder{t: t, artifact: func(_ *tar.Header, r io.Reader) error {
		_, end = io.Copy(io.Discard, r)
		return end
	}}
	result, err := wire.NewBackend(conn, nil, nil).Run(t.Context(), executor.Job{}, sink)
	if err != nil || result.Status != executor.StatusKilled || !errors.Is(end, io.ErrUnexpectedEOF) {
		t.Errorf("got %+v, %v; the artifact ended with %v", result, err, end)
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
	target := &pb.WriteFileRequest{Message: &pb.WriteFileRequest_Target{Target: &pb.FileTarget{Id: "ctx-1", Path: "a", SizeBytes: -1}}}
	data := &pb.WriteFileRequest{Message: &pb.WriteFileRequest_Data{Data: []byte("abc")}}
	end := &pb.WriteFileRequest{Message: &pb.WriteFileRequest_End{End: &pb.FileEnd{}}}
	cases := map[string][]*pb.WriteFileRequest{
		"without a message":         {},
		"with an empty message":     {{}},
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
			stream, err := pb.NewSessionToolsServiceClient(conn).WriteFile(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if err := stream.Send(m); err != nil {
					break
				}
			}
			if _, err := stream.CloseAndRecv(); err == nil {
				t.Error("it was taken")
			}
		})
	}
}

// A caller on another machine gives no names of files and sockets of this one.
func TestNamesOfACallerOnAnotherMachineAreNotLookedAt(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled := make(chan struct{})
	go func() {
		if conn, err := listener.Accept(); err == nil {
			close(dialled)
			_ = conn.Close()
		}
	}()
	for name, source := range map[string]*pb.Source{
		"a file":   {Path: secret, SizeBytes: 6},
		"a socket": {Key: "k", Socket: listener.Addr().String(), SizeBytes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan error, 1)
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
				wire.RegisterRemoteBackend(s, &stub{run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
					if job.Workspace.Path != "" {
						t.Errorf("the backend gets the path %s", job.Workspace.Path)
					}
					r, err := job.Workspace.Open()
					if err == nil {
						defer r.Close()
						_, err = io.ReadAll(r)
					}
					seen <- err
					return succeeded, nil
				}})
			})
			feed := feedOf(t, conn, "k")
			stream, err := pb.NewBackendServiceClient(conn).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&pb.RunRequest{Message: &pb.RunRequest_Start{Start: &pb.RunStart{Job: &pb.Job{Workspace: source}}}}); err != nil {
				t.Fatal(err)
			}
			if source.Path != "" {
				if err := <-seen; executor.CodeOf(err) != executor.Invalid {
					t.Errorf("the file was opened: %v", err)
				}
				return
			}
			m, err := feed.Recv() // the source is asked for on its stream
			if err != nil || m.GetOpen() == nil || m.GetOpen().GetSocket() {
				t.Errorf("got %v, %v", m, err)
			}
			if err := feed.Send(&pb.FeedRequest{Message: &pb.FeedRequest_End{End: &pb.SourceEnd{}}}); err != nil {
				t.Error(err)
			}
			if err := <-seen; err != nil {
				t.Error(err)
			}
			select {
			case <-dialled:
				t.Error("the socket was dialled")
			default:
			}
		})
	}
}
