package httpfrontend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// serving starts serve and returns the address, the end of its ctx, and what it returned.
func serving(t *testing.T, h http.Handler, now <-chan struct{}, drain time.Duration) (addr string, end func(), returned chan error) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	returned = make(chan error, 1)
	go func() { returned <- serve(ctx, now, l, h, slog.New(slog.DiscardHandler), drain) }()
	return "http://" + l.Addr().String(), func() { cancel(nil) }, returned
}

func ask(t *testing.T, client *http.Client, method, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

func TestServeDrains(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, executor.Started{}, out(executor.Stdout, 0, "x"))
	svc := r.service()
	submitted := make(chan struct{})
	svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
		close(submitted)
		return r.state(), nil
	}
	addr, end, returned := serving(t, handlerOf(t, svc), nil, time.Minute)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	events, err := ask(t, client, http.MethodGet, addr+one+"/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	logs, err := ask(t, client, http.MethodGet, addr+one+"/logs?follow=true", "")
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Body.Close()
	answered := make(chan string, 1)
	go func() {
		res, err := ask(t, client, http.MethodPost, addr+"/api/v1/exec/sync", `{"code":"x"}`)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		data, _ := io.ReadAll(res.Body)
		answered <- string(data)
	}()
	awaittest.Closed(t, "the Execution is submitted", submitted)
	end()
	// Followers end at once: the events orderly (they resume), the raw bytes not like a whole.
	if data, err := io.ReadAll(events.Body); err != nil || strings.Contains(string(data), "finished") {
		t.Fatalf("%s %v", data, err)
	}
	if _, err := io.ReadAll(logs.Body); err == nil {
		t.Fatal("a part of a log looks like the whole")
	}
	// The call in flight gets its answer.
	r.add(done(0))
	if got := awaittest.Recv(t, "the call ends", answered); !strings.Contains(got, `"succeeded"`) {
		t.Fatal(got)
	}
	if err := awaittest.Recv(t, "serve returns", returned); err != nil {
		t.Fatal(err)
	}
}

func TestServeCutsEverythingWhenThereIsNoTimeLeft(t *testing.T) {
	t.Parallel()
	svc, submitted, killed := endless(true)
	now := make(chan struct{})
	addr, end, returned := serving(t, handlerOf(t, svc), now, 24*time.Hour)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		res, err := ask(t, client, http.MethodPost, addr+"/api/v1/exec/sync", `{"code":"x"}`)
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	awaittest.Closed(t, "the Execution is submitted", submitted)
	end()
	close(now)
	if id := awaittest.Recv(t, "the Execution is killed", killed); id != testID {
		t.Fatal(id)
	}
	_ = awaittest.Recv(t, "the call ends", answered)
	if err := awaittest.Recv(t, "serve returns", returned); err != nil {
		t.Fatal(err)
	}
}

func TestServeCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	svc, submitted, killed := endless(true)
	addr, end, returned := serving(t, handlerOf(t, svc), nil, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		res, err := ask(t, client, http.MethodPost, addr+"/api/v1/exec/sync", `{"code":"x"}`)
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	awaittest.Closed(t, "the Execution is submitted", submitted)
	end()
	if id := awaittest.Recv(t, "the Execution is killed", killed); id != testID {
		t.Fatal(id)
	}
	_ = awaittest.Recv(t, "the call ends", answered)
	if err := awaittest.Recv(t, "serve returns", returned); err != nil {
		t.Fatal(err)
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), nil, l, http.NotFoundHandler(), nil); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

func TestTheBoundOfHeaders(t *testing.T) {
	t.Parallel()
	addr, end, returned := serving(t, handlerOf(t, hello().service()), nil, time.Minute)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for size, status := range map[int]int{maxHeader / 2: 200, 2 * maxHeader: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, addr+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Large", strings.Repeat("x", size))
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("headers of %d bytes: status %d, want %d", size, res.StatusCode, status)
		}
	}
	end()
	if err := awaittest.Recv(t, "serve returns", returned); err != nil {
		t.Error(err)
	}
}
