//go:build linux

package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestAHostThatFollowsNothingGetsNoCredit(t *testing.T) {
	cfg := survivorConfig(t)
	s := newSurvivor(t, cfg)
	conn, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	if err != nil {
		t.Fatal(err)
	}
	// The program reads what the host has sent only after that host has gone.
	start := shell("until [ -e go ]; do sleep 0.01; done; wc -c > counting; mv counting counted")
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = conn.Run(context.Background(), start, RunInput{Stdin: strings.NewReader(strings.Repeat("x", 1<<20))}, s) // it ends with the connection
	})
	<-s.started
	s.detach(t, conn)
	running.Wait()
	holder, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.WorkRoot, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaittest.UntilNil(t, "the program's end", func() error {
		_, err := os.Stat(filepath.Join(cfg.WorkRoot, "counted"))
		return err
	})
	if err := errors.Join(holder.Check(t.Context()), holder.Err()); err != nil {
		t.Errorf("the host that holds the runner: %v", err)
	}
	s.detach(t, holder)
}

// A runner that ends because the host broke the protocol has no Result of what it kills then.
func TestARunnerThatGivesUpItsHostHasNoResult(t *testing.T) {
	r, host := startProcess(t, nil)
	conn, err := NewConn(host, testConfig(t))
	if err != nil {
		t.Fatalf("hello: %v\n%s", err, r.stderr)
	}
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindStarted {
			return conn.out.Send(protocol.FrameType(200))
		}
		return nil
	}
	res, err := conn.Run(t.Context(), shell("sleep 1000000"), RunInput{}, rec)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %s, %v", describe(res), err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := r.cmd.Wait(); err == nil || !strings.Contains(r.stderr.String(), "unknown frame type 200") {
		t.Errorf("the runner: %v\n%s", err, r.stderr)
	}
}
