package wire_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// supervised is a plugin's side whose answers are set by a test.
type supervised struct {
	configure func(ctx context.Context, c wire.Configuration) (executor.Info, error)
	drain     func(ctx context.Context) error
	gone      chan error
}

func (s *supervised) Configure(ctx context.Context, c wire.Configuration) (executor.Info, error) {
	if s.configure == nil {
		return executor.Info{Name: c.Name}, nil
	}
	return s.configure(ctx, c)
}

func (s *supervised) Drain(ctx context.Context) error {
	if s.drain == nil {
		return nil
	}
	return s.drain(ctx)
}

func (s *supervised) Gone(cause error) { s.gone <- cause }

func pluginAt(t *testing.T, s *supervised) *grpc.ClientConn {
	t.Helper()
	s.gone = make(chan error, 1)
	return plugintest.Connect(t, func(r grpc.ServiceRegistrar) { wire.RegisterSupervised(r, s) })
}

func TestSupervisionFromConfigureToDrained(t *testing.T) {
	t.Parallel()
	want := wire.Configuration{Name: "n", Instance: "i", Embedded: true, Personal: true, DataDir: "/d", Options: []byte(`{"a":1}`)}
	s := &supervised{configure: func(_ context.Context, c wire.Configuration) (executor.Info, error) {
		if !reflect.DeepEqual(c, want) {
			t.Errorf("configured with %+v", c)
		}
		return executor.Info{Name: "n", Capacity: 3}, nil
	}}
	conn := pluginAt(t, s)
	host, err := wire.Supervise(t.Context(), conn, want)
	if err != nil {
		t.Fatal(err)
	}
	if info := host.Info(); info.Capacity != 3 || !host.InlineSources() {
		t.Errorf("info %+v, inline sources %t", info, host.InlineSources())
	}
	for range 3 {
		if err := host.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := wire.Supervise(t.Context(), conn, want); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("a second host: %v", err)
	}
	if err := host.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	<-host.Done()
	if err := host.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if cause := <-s.gone; cause != nil {
		t.Errorf("the plugin saw %v", cause)
	}
	if err := host.Ping(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a ping after the end: %v", err)
	}
	host.Cut()
}

func TestARefusedConfigurationIsTheErrorOfTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		configure func() (executor.Info, error)
		code      executor.Code
	}{
		"refused": {func() (executor.Info, error) {
			return executor.Info{}, executor.FieldErrorf(executor.Invalid, "a", "no")
		}, executor.Invalid},
		"panicked": {func() (executor.Info, error) { panic("configure") }, executor.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &supervised{configure: func(context.Context, wire.Configuration) (executor.Info, error) { return c.configure() }}
			_, err := wire.Supervise(t.Context(), pluginAt(t, s), wire.Configuration{})
			if executor.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
			if cause := <-s.gone; cause != nil {
				t.Errorf("the plugin saw %v", cause)
			}
		})
	}
}

func TestAStartOfSupervisionEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &supervised{configure: func(ctx context.Context, _ wire.Configuration) (executor.Info, error) {
		cancel(nil)
		<-ctx.Done()
		return executor.Info{}, ctx.Err()
	}}
	if _, err := wire.Supervise(ctx, pluginAt(t, s), wire.Configuration{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-s.gone
}

func TestAHostThatGoesAwayIsSeen(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	cases := map[string]struct {
		s   *supervised
		act func(host *wire.Supervision)
	}{
		"while the plugin works": {&supervised{}, func(host *wire.Supervision) { host.Cut() }},
		"while the plugin drains": {
			&supervised{drain: func(ctx context.Context) error { close(draining); <-ctx.Done(); return ctx.Err() }},
			func(host *wire.Supervision) {
				ctx, cancel := context.WithCancelCause(context.Background())
				go func() {
					<-draining
					cancel(nil)
				}()
				if err := host.Drain(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("drain: %v", err)
				}
				host.Cut()
				if err := host.Drain(context.Background()); executor.CodeOf(err) != executor.Unavailable {
					t.Errorf("drain after the cut: %v", err)
				}
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, err := wire.Supervise(t.Context(), pluginAt(t, c.s), wire.Configuration{})
			if err != nil {
				t.Fatal(err)
			}
			c.act(host)
			if cause := <-c.s.gone; !errors.Is(cause, executor.ErrCallerGone) {
				t.Errorf("the plugin saw %v", cause)
			}
			<-host.Done()
			if host.Err() == nil {
				t.Error("the host's side ended without an error")
			}
		})
	}
}

func TestAnErrorOfClosingComesBackFromTheDrain(t *testing.T) {
	t.Parallel()
	s := &supervised{drain: func(context.Context) error { return executor.Errorf(executor.Internal, "cache is broken") }}
	host, err := wire.Supervise(t.Context(), pluginAt(t, s), wire.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Drain(t.Context()); executor.CodeOf(err) != executor.Internal || err.Error() != "cache is broken" {
		t.Errorf("got %v", err)
	}
	<-s.gone
}

func TestSupervisionBeginsWithConfigure(t *testing.T) {
	t.Parallel()
	s := &supervised{}
	stream, err := pb.NewPluginServiceClient(pluginAt(t, s)).Supervise(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.SuperviseRequest{Message: &pb.SuperviseRequest_Ping{Ping: &pb.Ping{}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("no error")
	}
	<-s.gone
}

// evilPlugin ends the stream, or answers with nonsense.
type evilPlugin struct {
	pb.UnimplementedPluginServiceServer
	answer *pb.SuperviseResponse
}

func (p *evilPlugin) Supervise(stream grpc.BidiStreamingServer[pb.SuperviseRequest, pb.SuperviseResponse]) error {
	if p.answer == nil {
		return nil
	}
	return stream.Send(p.answer)
}

func TestAPluginThatIsNotReadyIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer *pb.SuperviseResponse
		code   executor.Code
	}{
		"it ends the stream":           {nil, executor.Unavailable},
		"it answers with another word": {&pb.SuperviseResponse{Message: &pb.SuperviseResponse_Pong{}}, executor.Internal},
	} {
		conn := plugintest.Connect(t, func(r grpc.ServiceRegistrar) { pb.RegisterPluginServiceServer(r, &evilPlugin{answer: c.answer}) })
		if _, err := wire.Supervise(t.Context(), conn, wire.Configuration{}); executor.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRemoveCrosses(t *testing.T) {
	t.Parallel()
	var removed string
	backend := plugintest.Wire(t, &stub{remove: func(_ context.Context, id string) error {
		removed = id
		return executor.Errorf(executor.Unavailable, "not now")
	}})
	if err := backend.Remove(t.Context(), "exe_7"); executor.CodeOf(err) != executor.Unavailable || removed != "exe_7" {
		t.Errorf("removed %q, %v", removed, err)
	}
}
