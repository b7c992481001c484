package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// binary is the program under test.
var binary string

// cacheDir is shared by the tests' servers, so that interpreters are probed and environments built once.
var cacheDir string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path, err := filepath.Abs("../bin/python-executor")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no binary to test (make build):", err)
		return 1
	}
	binary = path
	dir, err := os.MkdirTemp("", "pyexec-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // programs run as other users
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cacheDir = filepath.Join(dir, "cache")
	code := m.Run()
	if err := dockertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the private Docker:", err)
		return 1
	}
	return code
}

// skipWithout skips loudly, or fails where CI requires what is missing.
func skipWithout(t *testing.T, what string, have bool) {
	t.Helper()
	needtest.Need(t, have, what, "")
}

// server is one running `python-executor serve`.
type server struct {
	t       *testing.T
	url     string
	token   string // sent with every request, unless it is empty
	dir     string // private: data, work, run
	cmd     *exec.Cmd
	log     *lockedBuffer
	exited  chan struct{}
	environ []string
	args    []string
	wrap    func(*exec.Cmd) // changes the command before it starts; may be nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// environ is what the program under test gets: nothing of the test's own settings.
func environ(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PYEXEC_") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// startServer starts a server on a free port with a data folder of its own and stops it after the test.
func startServer(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(cacheDir), "server-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, args: args, environ: environ(append([]string{
		"PYEXEC_HTTP_BIND=127.0.0.1:0",
		"PYEXEC_DATA_DIR=" + filepath.Join(dir, "data"),
		"PYEXEC_BACKENDS_UV_WORK_DIR=" + filepath.Join(dir, "work"),
		"PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir,
	}, env...)...)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start starts the server and waits until it is ready.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	awaittest.Until(s.t, "server is ready", func() bool {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// launch starts the server and returns when it has printed its address.
func (s *server) launch() {
	s.t.Helper()
	s.log = &lockedBuffer{}
	s.cmd = exec.Command(binary, append([]string{"serve"}, s.args...)...)
	s.cmd.Env = s.environ
	if s.wrap != nil {
		s.wrap(s.cmd)
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout = s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.exited = make(chan struct{})
	found := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			_, _ = io.WriteString(s.log, line)
			line = strings.Replace(line, "http://[::]:", "http://127.0.0.1:", 1)
			if i := strings.Index(line, "http://127.0.0.1:"); i >= 0 {
				url := strings.FieldsFunc(line[i:], func(r rune) bool { return strings.ContainsRune(" \t\n\"'", r) })[0]
				select {
				case found <- strings.TrimRight(url, "/"):
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		<-done
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	select {
	case s.url = <-found:
	case <-s.exited:
		s.t.Fatalf("serve ended:\n%s", s.log)
	case <-awaittest.Context(s.t).Done():
		_ = s.cmd.Process.Kill()
		s.t.Fatalf("serve printed no address within %s:\n%s", awaittest.Bound, s.log)
	}
}

// stop ends the server as an operator would, and fails the test when it does not end.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	defer func() { _ = s.cmd.Process.Kill() }() // the one that hangs
	awaittest.Closed(s.t, "the end of serve after SIGTERM", s.exited)
}

// kill ends the server with SIGKILL and waits for it.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// answer is an HTTP response that was read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("status %d, not JSON: %v: %.500s", a.status, err, a.body)
	}
	return v
}

func (s *server) do(req *http.Request) answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

func (s *server) request(method, path string, body io.Reader, header ...string) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (s *server) get(path string, header ...string) answer {
	return s.do(s.request(http.MethodGet, path, nil, header...))
}

func (s *server) post(path, body string, header ...string) answer {
	return s.do(s.request(http.MethodPost, path, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, header...)...))
}

// async submits code and returns the id.
func (s *server) async(body string) string {
	s.t.Helper()
	a := s.post("/api/v1/exec/async", body)
	if a.status != http.StatusAccepted {
		s.t.Fatalf("async: %d %s", a.status, a.body)
	}
	return a.json(s.t)["execution_id"].(string)
}

// wait polls an execution until its status is one of want.
func (s *server) wait(id string, want ...string) map[string]any {
	s.t.Helper()
	var last map[string]any
	awaittest.Until(s.t, id+" reaches "+strings.Join(want, " or "), func() bool {
		last = s.get("/api/v1/executions/" + id).json(s.t)
		for _, w := range want {
			if last["status"] == w {
				return true
			}
		}
		return false
	})
	return last
}

// outcome of one CLI call.
type outcome struct {
	stdout, stderr string
	code           int
}

// cli runs the binary to its end.
func cli(t *testing.T, env []string, stdin io.Reader, args ...string) outcome {
	t.Helper()
	ctx := awaittest.Context(t)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = environ(append([]string{"PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir}, env...)...)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%v: %v\n%s", args, err, &stderr)
	}
	if ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s", args, context.Cause(ctx), &stderr)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// processes returns the pids whose working folder or environment mentions text; zombies are left out.
func processes(t *testing.T, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		env, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if strings.Contains(cwd, text) || bytes.Contains(env, []byte(text)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
