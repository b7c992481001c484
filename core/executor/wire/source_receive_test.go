package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// reading is a Backend whose Run reads the workspace.
type reading struct{ executor.Backend }

func (reading) Run(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
	r, err := job.Workspace.Open()
	if err != nil {
		return executor.Result{}, err
	}
	_, err = io.Copy(io.Discard, r)
	return executor.Result{Status: executor.StatusSucceeded}, err
}

func TestNothingIsKeptOfTheSourcesOfACall(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	feeds := &feeds{byKey: map[string]*feed{}}
	server := grpc.NewServer(append(ServerOptions(nil), grpc.WaitForHandlers(true))...)
	pb.RegisterSourceServiceServer(server, feeds)
	pb.RegisterBackendServiceServer(server, &backendServer{backend: reading{}, feeds: feeds})
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+listener.Addr().String(), append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	workspace := &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }}
	unread := &executor.Source{SizeBytes: 1, Replayable: true, Open: func() (io.ReadCloser, error) {
		t.Error("a source was read for a side that does not take it with the call")
		return io.NopCloser(strings.NewReader("x")), nil
	}}
	for range 3 {
		if _, err := NewBackend(conn, nil, nil).Run(t.Context(), executor.Job{Workspace: workspace, Stdin: unread}, nil); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	server.GracefulStop()
	feeds.mu.Lock()
	defer feeds.mu.Unlock()
	if len(feeds.byKey) != 0 {
		t.Errorf("left: %v", feeds.byKey)
	}
}

func TestACloseEndsAReadThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &sourceReader{feed: &feed{over: make(chan struct{})}, parts: make(chan part), closed: make(chan struct{})}
		ended := make(chan error, 1)
		go func() {
			_, err := r.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errSourceClosed) {
			t.Errorf("got %v", err)
		}
	})
}
