package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// defaultSocket is the default address of a Docker daemon.
const defaultSocket = "unix:///var/run/docker.sock"

// daemon is the daemon of this process, found or started once.
var daemon struct {
	once sync.Once
	host string
	err  error
	own  *private // nil: not started by this process
}

// Variable is the environment variable with the folder of a private daemon that several test processes share (Serve). Its daemon is the one
// that they use.
const Variable = "PYEXEC_TEST_DOCKER"

// Serve starts a private daemon for the test processes that have Variable with the value folder, and imports the test images. Signals do not
// end the daemon: the caller calls stop. If there is a daemon at DOCKER_HOST or at the default socket, folder is empty, because test
// processes find that one by themselves.
func Serve() (folder string, stop func() error, err error) {
	host, own, err := find()
	if err != nil {
		return "", nil, err
	}
	stop = func() error { return nil }
	if own != nil {
		own.ignore()
		folder, stop = own.dir, own.stop
	}
	for _, tag := range tags {
		if _, err := Import(context.Background(), host, tag); err != nil {
			return "", nil, errors.Join(err, stop())
		}
	}
	return folder, stop, nil
}

// Sweep removes the daemons of processes that were killed.
func Sweep() { sweep() }

// Host returns the DOCKER_HOST of a usable daemon. Without one it skips the test, or fails it if PYEXEC_TEST_REQUIRE contains
// "docker". It also fails the test if a shared daemon is gone. The TestMain of a package that calls Host must call Main.
func Host(t testing.TB) string {
	t.Helper()
	host, err := Find()
	if err != nil && os.Getenv(Variable) != "" {
		t.Fatalf("the daemon of %s: %v", Variable, err)
	}
	needtest.Need(t, err == nil, "docker", fmt.Sprint(err))
	return host
}

// Find does the same as Host, for benchmarks and soaks, which have no testing.TB. If there is no daemon, it returns the reason.
// Stop stops a daemon that Find started.
func Find() (host string, err error) {
	daemon.once.Do(func() { daemon.host, daemon.own, daemon.err = find() })
	return daemon.host, daemon.err
}

// Private reports whether this process started the daemon, so that no other process changes its objects.
func Private() bool { return daemon.own != nil }

// gVisor is the name of the gVisor runtime.
const gVisor = "runsc"

// GVisor returns the name of the daemon's runtime that runs containers on gVisor's kernel. Without one it skips the test, or
// fails it if PYEXEC_TEST_REQUIRE contains "runsc". A private daemon has the runtime if the program is installed.
func GVisor(t testing.TB) string {
	t.Helper()
	var info system.Info
	ask(t, func(ctx context.Context, cli *client.Client) (err error) {
		info, err = cli.Info(ctx)
		return err
	})
	_, ok := info.Runtimes[gVisor]
	needtest.Need(t, ok, gVisor, "the daemon has no such runtime")
	return gVisor
}

// Main runs the tests, stops the daemon that they started, if any, checks that no goroutine is left, and exits.
func Main(m leaktest.M) { leaktest.Main(stopping{m}) }

// Stop stops and removes the daemon that this process started, if any. Main calls it; a TestMain that does not call Main must
// call Stop. It is idempotent.
func Stop() error {
	if daemon.own == nil {
		return nil
	}
	err := daemon.own.stop()
	daemon.own = nil
	daemon.err = errors.New("the daemon was stopped")
	return err
}

// stopping is an M that stops the daemon before goroutines are counted.
type stopping struct{ m leaktest.M }

func (s stopping) Run() int {
	code := s.m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the private Docker:", err)
		code = max(code, 1)
	}
	return code
}

// find looks for a daemon, and starts one if there is none.
func find() (string, *private, error) {
	if dir := os.Getenv(Variable); dir != "" {
		host := hostOf(dir)
		return host, nil, answers(host)
	}
	var tried []error
	for _, host := range []string{os.Getenv(client.EnvOverrideHost), defaultSocket} {
		if host == "" {
			continue
		}
		err := answers(host)
		if err == nil {
			return host, nil, nil
		}
		tried = append(tried, fmt.Errorf("%s: %w", host, err))
	}
	own, err := start()
	if err != nil {
		return "", nil, errors.Join(append(tried, err)...)
	}
	return own.host(), own, nil
}

// answers returns an error if there is no usable daemon at host.
func answers(host string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cli, done, err := dial(host)
	if err != nil {
		return err
	}
	defer done()
	ping, err := cli.Ping(ctx)
	if err == nil && ping.OSType != "" && ping.OSType != "linux" {
		err = fmt.Errorf("runs %s containers", ping.OSType)
	}
	return err
}

// dial returns a client of host, with the TLS settings of the environment. done closes its connections.
func dial(host string) (cli *client.Client, done func(), err error) {
	cli, err = client.NewClientWithOpts(client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, nil, err
	}
	return cli, func() { _ = cli.Close() }, nil // Close never fails
}
