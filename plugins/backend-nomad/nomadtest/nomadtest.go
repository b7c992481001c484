package nomadtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// Options say what a cluster is made of.
type Options struct {
	// Clients is the number of clients, each a process of its own beside the server's. Default 1.
	Clients int
	// ACL switches access control on. The cluster's own API and Command use a management token.
	ACL bool
	// TLS secures the API: the files are those of the agents and of their clients. Without a CACert it is not secured.
	TLS api.TLSConfig
	// RawExec allows tasks without isolation (driver raw_exec).
	RawExec bool
	// FastDown makes the server take a client for down after some 5 seconds of silence. Nomad's own time is at least 20 seconds.
	FastDown bool
	// Settings are added to the configuration of the server's agent, in HCL.
	Settings string
	// Consul is the stanza consul of all agents, in HCL. Without it no client looks for a Consul.
	Consul string
}

// Start starts a cluster and removes it with t. If t has failed by then, the logs of the agents are kept, and t says where. Without
// what a cluster needs, t is skipped, or fails if PYEXEC_TEST_REQUIRE contains "nomad".
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Launch(o)
	needed(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.KeepLogs())
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// shared is the cluster that all tests of this process use.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Shared returns the cluster that all tests of this process use: a server and two clients, with raw_exec. If the environment has Variable, it
// is the one that other test processes use, too. Otherwise the first call starts it, and Main removes it. Names of jobs, services and
// variables must be of the test process alone. A test that stops agents or changes nodes takes Start.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() {
		if dir := os.Getenv(Variable); dir != "" {
			shared.cluster, shared.err = join(dir)
		} else {
			shared.cluster, shared.err = Launch(forAll)
		}
	})
	needed(t, shared.err)
	return shared.cluster
}

// Main runs the tests, removes the shared cluster and a Docker that was started for it, checks that no goroutine is left, and exits.
func Main(m leaktest.M) { dockertest.Main(stopping{m}) }

// stopping is an M that removes the shared cluster before Docker is stopped.
type stopping struct{ m leaktest.M }

func (s stopping) Run() int {
	code := s.m.Run()
	if shared.cluster == nil {
		return code
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, shared.cluster.KeepLogs())
	}
	if err := shared.cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop Nomad:", err)
		code = max(code, 1)
	}
	return code
}

// needed fails t if there is an error. If this machine lacks something, t is skipped, or fails if PYEXEC_TEST_REQUIRE contains "nomad".
func needed(t testing.TB, err error) {
	t.Helper()
	needtest.Need(t, !errors.Is(err, ErrMissing), "nomad", fmt.Sprint(err))
	if err != nil {
		t.Fatal(err)
	}
}

// Executor returns the path of the python-executor that make build has made. Without one, t is skipped, or fails if
// PYEXEC_TEST_REQUIRE contains "nomad".
func Executor(t testing.TB) string {
	t.Helper()
	path, err := above("bin/python-executor")
	needtest.Need(t, err == nil, "nomad", fmt.Sprintf("make build makes the binary: %v", err))
	return path
}

// ErrMissing is in the error of Launch if this machine lacks something.
var ErrMissing = errors.New("cannot run Nomad here")

// Binary returns the path of the Nomad binary. Without one, t is skipped, or fails if PYEXEC_TEST_REQUIRE contains "nomad".
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	needed(t, err)
	return path
}

// binary returns the path of the Nomad that tools/nomad.sh has built. It does not build it, because that takes minutes.
var binary = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../../tools/nomad.sh")
	if _, err := os.Stat(script); err != nil { // the file's path is not known with -trimpath
		if script, err = above("tools/nomad.sh"); err != nil {
			return "", fmt.Errorf("%w: %w", ErrMissing, err)
		}
	}
	var said bytes.Buffer
	cmd := exec.Command(script, "--built")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrMissing, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
})

// above finds a file of the repository in the current folder or one above it.
func above(path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			return filepath.Join(dir, path), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a folder above", path)
		}
	}
}

// Command returns the nomad command with the cluster's address and token. ctx ends it.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+c.Address(), "NOMAD_TOKEN="+c.token, "NOMAD_CLI_SHOW_HINTS=false",
		"NOMAD_CACERT="+c.tls.CACert, "NOMAD_CLIENT_CERT="+c.tls.ClientCert, "NOMAD_CLIENT_KEY="+c.tls.ClientKey, "NOMAD_TLS_SERVER_NAME="+c.tls.TLSServerName)
	return cmd
}

// Nomad runs the nomad command and returns what it printed. An exit code other than 0 fails t.
func (c *Cluster) Nomad(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.Command(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nomad %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
