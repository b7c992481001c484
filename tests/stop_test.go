package tests

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// deaf says where it is and ignores everything that it can: only SIGKILL ends it.
const deaf = `import signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(86400)
`

// patient is a configuration under which nothing ends within a test but at once.
func patient() []string {
	return []string{
		"PYEXEC_ENGINE_DRAIN_TIMEOUT_SECONDS=86400", "PYEXEC_LIMITS_DEFAULT_TIMEOUT_SECONDS=86400",
		"PYEXEC_LIMITS_DEFAULT_KILL_GRACE_SECONDS=86400", "PYEXEC_LIMITS_MAX_KILL_GRACE_SECONDS=86400",
	}
}

// stopped is a command of ours that is stopped by signals.
type stopped struct {
	t    *testing.T
	dir  string
	run  string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	mu   sync.Mutex
	said bytes.Buffer
	read chan struct{}
}

// startStopped starts a command whose temporary and run folders are its own.
func startStopped(t *testing.T, env []string, args ...string) *stopped {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(cacheDir), "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("/tmp", "r") // a long name would not be used
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	s := &stopped{t: t, dir: dir, run: run, read: make(chan struct{})}
	s.cmd = exec.Command(binary, args...)
	s.cmd.Env = environ(append([]string{
		"TMPDIR=" + filepath.Join(dir, "tmp"), "XDG_RUNTIME_DIR=" + run,
		"PYEXEC_HTTP_BIND=127.0.0.1:0", "PYEXEC_DATA_DIR=" + filepath.Join(dir, "data"),
		"PYEXEC_BACKENDS_UV_WORK_DIR=" + s.work(), "PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir,
	}, append(patient(), env...)...)...)
	in, inErr := s.cmd.StdinPipe()
	out, outErr := s.cmd.StdoutPipe()
	stderr, err := s.cmd.StderrPipe()
	if inErr != nil || outErr != nil || err != nil {
		t.Fatal(inErr, outErr, err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() {
		defer close(s.read)
		buffer := make([]byte, 4096)
		for {
			n, err := stderr.Read(buffer)
			s.mu.Lock()
			s.said.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *stopped) work() string { return filepath.Join(s.dir, "work") }

func (s *stopped) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

func (s *stopped) signal(n syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(n); err != nil {
		s.t.Fatal(err)
	}
}

// programs lists the processes of the command's programs.
func (s *stopped) programs() []int { return leftovertest.Programs(s.work()) }

// isDeaf reports whether a program ignores SIGTERM by now.
func (s *stopped) isDeaf() bool {
	return slices.ContainsFunc(s.programs(), func(pid int) bool {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
		_, rest, _ := strings.Cut(string(raw), "\nSigIgn:")
		line, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		ignored, _ := strconv.ParseUint(line, 16, 64)
		return ignored&(1<<(syscall.SIGTERM-1)) != 0
	})
}

// plugins lists the command's plugin processes.
func (s *stopped) plugins(name string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		raw, _ := os.ReadFile(file)
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if len(fields) > 1 && fields[1] == strconv.Itoa(s.cmd.Process.Pid) && bytes.Contains(line, []byte(name)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// endsAtOnce expects the exit status, and that nothing is left: no process, no folder.
func (s *stopped) endsAtOnce(status int, plugins []int) {
	s.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, s.out)
		<-s.read
		_ = s.cmd.Wait()
	}()
	awaittest.Closed(s.t, "its end", ended)
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("exit status %d, want %d\n%s", got, status, s.stderr())
	}
	for _, pid := range plugins { // a process whose parent is gone is there until another one has waited for it
		awaittest.Until(s.t, fmt.Sprintf("plugin %d is gone", pid), func() bool { return syscall.Kill(pid, 0) != nil })
	}
	awaittest.Until(s.t, "no program is left", func() bool { return len(s.programs()) == 0 })
	for _, dir := range []string{filepath.Join(s.dir, "tmp"), s.run, s.work()} {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			if e.Name() != ".lock" {
				s.t.Errorf("left behind in %s: %s", dir, e.Name())
			}
		}
		if err != nil {
			s.t.Error(err)
		}
	}
	if s.t.Failed() {
		s.t.Log(s.stderr())
	}
}

func TestASecondSignalEndsEverythingAtOnce(t *testing.T) {
	for _, kind := range []struct {
		name    string
		start   func(t *testing.T) *stopped
		plugins []string
	}{
		{"serve", startDeafServer, []string{"backend-uv", "frontend-mcp"}},
		{"run", startDeafRun, nil},
		{"mcp", startDeafMCP, nil},
	} {
		for _, how := range []struct {
			name          string
			first, second syscall.Signal
			// hangs is the plugin that is frozen before; none: empty.
			hangs string
		}{
			{"SIGTERM twice", syscall.SIGTERM, syscall.SIGTERM, ""},
			{"Ctrl-C, then SIGTERM", syscall.SIGINT, syscall.SIGTERM, ""},
			{"a backend hangs", syscall.SIGINT, syscall.SIGINT, "backend-uv"},
			{"a frontend hangs", syscall.SIGTERM, syscall.SIGTERM, "frontend-mcp"},
		} {
			if how.hangs != "" && !strings.Contains(strings.Join(kind.plugins, " "), how.hangs) {
				continue
			}
			t.Run(kind.name+": "+how.name, func(t *testing.T) {
				t.Parallel()
				s := kind.start(t)
				awaittest.Until(t, "the program is deaf", s.isDeaf)
				var all []int
				for _, name := range kind.plugins {
					var pids []int
					awaittest.Until(t, "there is a process of "+name, func() bool { pids = s.plugins(name); return len(pids) == 1 })
					all = append(all, pids...)
					if name == how.hangs {
						plugintest.Freeze(t, pids[0])
					}
				}
				s.signal(how.first)
				awaittest.Until(t, "it says that a second signal ends it", func() bool { return strings.Contains(s.stderr(), "again to end at once") })
				if len(s.programs()) == 0 {
					t.Errorf("the program ended with the first signal:\n%s", s.stderr())
				}
				s.signal(how.second)
				s.endsAtOnce(128+int(how.second), all)
			})
		}
	}
}

func startDeafServer(t *testing.T) *stopped {
	t.Helper()
	s := startStopped(t, nil, "serve")
	var url string
	awaittest.Until(t, "it listens", func() bool {
		_, rest, found := strings.Cut(s.stderr(), `"url":"`)
		url, _, _ = strings.Cut(rest, `"`)
		return found
	})
	client := &server{t: t, url: url}
	client.async(fmt.Sprintf(`{"code":%q}`, deaf))
	return s
}

func startDeafRun(t *testing.T) *stopped {
	t.Helper()
	s := startStopped(t, nil, "run")
	if _, err := io.WriteString(s.in, deaf); err != nil {
		t.Fatal(err)
	}
	s.in.Close()
	if line, err := s.out.ReadString('\n'); line != "deaf\n" {
		t.Fatalf("%q, %v\n%s", line, err, s.stderr())
	}
	return s
}

func startDeafMCP(t *testing.T) *stopped {
	t.Helper()
	return startMCP(t, deaf)
}

// startMCP starts the command mcp with a call of program.
func startMCP(t *testing.T, program string) *stopped {
	t.Helper()
	s := startStopped(t, nil, "mcp")
	send := func(message string) {
		if _, err := io.WriteString(s.in, message+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if line, err := s.out.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v\n%s", line, err, s.stderr())
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":%q,"python_version":"%s","timeout_seconds":3600}}}`, program, minorOf(t, nil)))
	return s
}

// The first signal cancels the calls of mcp. Each gets an answer that says why.
func TestACallThatASignalCancelsIsAnswered(t *testing.T) {
	t.Parallel()
	s := startMCP(t, "import time\ntime.sleep(86400)\n")
	awaittest.Until(t, "the program runs", func() bool { return len(s.programs()) > 0 })
	s.signal(syscall.SIGTERM)
	line, err := s.out.ReadString('\n')
	if err != nil || !strings.Contains(line, `"id":2`) || !strings.Contains(line, "the frontend is stopping") {
		t.Errorf("%q, %v\n%s", line, err, s.stderr())
	}
	if err := s.cmd.Wait(); err != nil || strings.Contains(s.stderr(), "ERROR") {
		t.Errorf("%v\n%s", err, s.stderr())
	}
}
