package plugin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// newLines makes a frontend that reads ids from the Unix socket of its options, a line each, and answers with the Execution's status.
func newLines(_ context.Context, c plugin.Configure) (executor.Frontend, map[string]string, error) {
	var o struct {
		Bad    bool
		Socket string
	}
	if err := json.Unmarshal(c.Options, &o); err != nil {
		return nil, nil, err
	}
	if o.Bad {
		return nil, nil, executor.FieldErrorf(executor.Invalid, c.Name+".bad", "is bad")
	}
	conn, err := net.Dial("unix", o.Socket)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, svc executor.Service) error {
		defer conn.Close()
		lines := make(chan string)
		go func() {
			defer close(lines)
			for scanner := bufio.NewScanner(conn); scanner.Scan(); {
				lines <- scanner.Text()
			}
		}()
		for {
			select {
			case <-ctx.Done():
				_, err := fmt.Fprintln(conn, "drained")
				return err
			case id, ok := <-lines:
				if !ok {
					return nil
				}
				if id == "fail" {
					return executor.Errorf(executor.Conflict, "as asked")
				}
				if id == "stay" {
					if _, err := fmt.Fprintln(conn, "staying"); err != nil {
						return err
					}
					select {}
				}
				x, err := svc.Get(executor.WithPrincipal(ctx, executor.Principal{Owner: "somebody"}), id)
				if _, err := fmt.Fprintln(conn, x.Status, executor.CodeOf(err)); err != nil {
					return err
				}
			}
		}
	}, map[string]string{"listening": "to lines"}, nil
}

// oneExecution is a Service that knows one Execution of one owner.
type oneExecution struct{ executor.Service }

func (oneExecution) Get(ctx context.Context, id string) (executor.Execution, error) {
	if id != "exe_1" || executor.PrincipalFrom(ctx).Owner != "somebody" {
		return executor.Execution{}, executor.Errorf(executor.NotFound, "execution %s", id)
	}
	return executor.Execution{ID: id, Status: executor.StatusRunning}, nil
}

// lineClient is a launched newLines with our end of its connection.
type lineClient struct {
	*plugin.Frontend
	conn *net.UnixConn
	out  *bufio.Reader
}

func launchLines(t *testing.T, bad bool) (lineClient, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "lines")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	path, args, err := plugintest.Command("lines")
	if err != nil {
		t.Fatal(err)
	}
	f, err := plugin.LaunchFrontend(t.Context(), plugin.LaunchOptions{
		Path: path, Args: args, RunDir: dir,
		Configure: plugin.Configure{Name: "lines", Options: fmt.Appendf(nil, `{"Bad":%t,"Socket":%q}`, bad, socket)},
	}, oneExecution{})
	if err != nil {
		return lineClient{}, err
	}
	t.Cleanup(func() {
		f.Kill()
		<-f.Ended()
	})
	conn, err := listener.AcceptUnix() // the frontend has connected
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return lineClient{f, conn, bufio.NewReader(conn)}, nil
}

// says writes a line and reads the answer.
func (l lineClient) says(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(l.conn, line); err != nil {
		t.Fatal(err)
	}
	answer, err := l.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

func TestAFrontendServesTheHostsServiceUntilItsClientIsGone(t *testing.T) {
	l, err := launchLines(t, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Info().Details["listening"]; got != "to lines" {
		t.Errorf("details: %q", got)
	}
	if got := l.says(t, "exe_1"); got != "running" {
		t.Errorf("exe_1: %q", got)
	}
	if got := l.says(t, "exe_2"); got != "not_found" {
		t.Errorf("exe_2: %q", got)
	}
	if err := l.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	awaittest.Closed(t, "the end after the client's", l.Ended())
	if err := l.EndErr(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestAFrontendsErrorReachesTheHost(t *testing.T) {
	l, err := launchLines(t, false)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(l.conn, "fail")
	awaittest.Closed(t, "its end", l.Ended())
	if executor.CodeOf(l.EndErr()) != executor.Conflict {
		t.Errorf("ended with %v", l.EndErr())
	}
}

func TestAClosedFrontendDrains(t *testing.T) {
	l, err := launchLines(t, false)
	if err != nil {
		t.Fatal(err)
	}
	l.says(t, "exe_1") // it serves
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	if answer, _ := l.out.ReadString('\n'); answer != "drained\n" {
		t.Errorf("it wrote %q", answer)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestAFrontendThatDoesNotDrainIsReportedAndKilled(t *testing.T) {
	t.Parallel()
	l, err := launchLines(t, false)
	if err != nil {
		t.Fatal(err)
	}
	l.says(t, "stay")
	process := awaittest.Observe(t, l.PID())
	noPatience := errors.New("no patience")
	ctx, end := context.WithCancelCause(t.Context())
	end(noPatience)
	if err := l.Close(ctx); executor.CodeOf(err) != executor.Unavailable || !errors.Is(err, noPatience) {
		t.Errorf("close: %v", err)
	}
	process.Gone(t)
}

func TestAKilledFrontendHasEndedAsUnavailable(t *testing.T) {
	l, err := launchLines(t, false)
	if err != nil {
		t.Fatal(err)
	}
	l.says(t, "exe_1")
	if err := syscall.Kill(l.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaittest.Closed(t, "its end", l.Ended())
	if executor.CodeOf(l.EndErr()) != executor.Unavailable {
		t.Errorf("ended with %v", l.EndErr())
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestAFrontendsBadOptionsAreNamed(t *testing.T) {
	_, err := launchLines(t, true)
	var e *executor.Error
	if !errors.As(err, &e) || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "lines.bad" {
		t.Errorf("got %v", err)
	}
}
