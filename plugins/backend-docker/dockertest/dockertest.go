package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"go.uber.org/goleak"
)

// defaultSocket is where a Docker listens that nobody configured.
const defaultSocket = "unix:///var/run/docker.sock"

// daemon is the one that this process uses, found or started once.
var daemon struct {
	once sync.Once
	host string
	err  error
	own  *private // nil: somebody else's
}

// Host returns the DOCKER_HOST of a usable daemon. The test is skipped where there is none, and fails if
// PYEXEC_TEST_REQUIRE has "docker". A package that calls it has Main in its TestMain.
func Host(t testing.TB) string {
	t.Helper()
	daemon.once.Do(func() { daemon.host, daemon.own, daemon.err = find() })
	if daemon.err != nil {
		missing(t, "docker", daemon.err)
	}
	return daemon.host
}

// gVisor is the name of the runtime that is gVisor's.
const gVisor = "runsc"

// GVisor returns the name of the daemon's runtime that runs containers on gVisor's kernel. The test is skipped where the
// daemon has none, and fails if PYEXEC_TEST_REQUIRE has "runsc". A private Docker has it where the program is installed.
func GVisor(t testing.TB) string {
	t.Helper()
	cli, done, err := dial(Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := asking()
	defer cancel()
	info, err := cli.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := info.Runtimes[gVisor]; !ok {
		missing(t, gVisor, errors.New("the daemon has no such runtime"))
	}
	return gVisor
}

// Main runs the tests, stops the Docker that they started, if any, checks that no goroutine is left, and exits.
func Main(m goleak.TestingM) { goleak.VerifyTestMain(stopping{m}) }

// Stop stops and removes the Docker that this process started, if any. Main calls it; a TestMain of its own that does not
// end in Main must. Safe to call twice, and without a Docker.
func Stop() error {
	if daemon.own == nil {
		return nil
	}
	err := daemon.own.stop()
	daemon.own = nil
	daemon.err = errors.New("it was stopped")
	return err
}

// stopping is a TestingM that stops the daemon before goroutines are counted.
type stopping struct{ m goleak.TestingM }

func (s stopping) Run() int {
	code := s.m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the private Docker:", err)
		code = max(code, 1)
	}
	return code
}

// find looks for a Docker, and starts one if there is none.
func find() (string, *private, error) {
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

// answers says why the Docker at host is none to use; nil: it is.
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

// dial makes a client of host, with the TLS settings of the environment. done gives its connections back.
func dial(host string) (cli *client.Client, done func(), err error) {
	cli, err = client.NewClientWithOpts(client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, nil, err
	}
	return cli, func() { _ = cli.Close() }, nil // it never fails
}

// missing skips t loudly, or fails it where CI requires what is missing.
func missing(t testing.TB, what string, why error) {
	t.Helper()
	if slices.Contains(strings.FieldsFunc(os.Getenv("PYEXEC_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what) {
		t.Fatalf("%s is required and missing: %s", what, why)
	}
	t.Skipf("SKIPPED, %s is missing: %s", what, why)
}
