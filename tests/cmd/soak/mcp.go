package main

import (
	"bufio"
	_ "embed" // the client's program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/mcpclient"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

//go:embed mcpcalls.py
var mcpCalls string

const (
	mcpAtOnce = 16
	// mcpFlood is what one program writes, and mcpFloodRSS the most that the core and each plugin may need meanwhile.
	mcpFlood    = 200_000_000
	mcpFloodRSS = 100 << 20
)

// runMCP is the soak of MCP: calls at 16 at once over stdio and over HTTP, none of which may lose its progress or see
// another's; a flood of output; and a client that is killed in the middle of a call. At the end nothing may be left.
func runMCP(binary string, calls int) error {
	python, err := mcpclient.Python(false)
	if err != nil {
		fmt.Println("the official Python client is not at hand: MCP is not soaked:", err)
		return nil
	}
	dir, err := os.MkdirTemp("", "pyexec-soak-mcp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	// A copy of its own: what runs it, plugins included, is known by its path.
	copied := filepath.Join(dir, "python-executor")
	if out, err := exec.Command("cp", binary, copied).CombinedOutput(); err != nil { //nolint:gosec // our own paths
		return fmt.Errorf("copy the program: %w: %s", err, out)
	}
	binary = copied
	script := filepath.Join(dir, "calls.py")
	if err := os.WriteFile(script, []byte(mcpCalls), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	s := &serve.Server{Binary: binary, Dir: dir, Env: []string{"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + address}}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()
	minor, err := mcpMinor(s)
	if err != nil {
		return err
	}
	m := &mcpSoak{binary: binary, python: python, script: script, minor: minor, dir: dir, env: []string{
		"PYEXEC_BACKENDS_UV_CACHE_DIR=" + filepath.Join(dir, "cache"), "PYEXEC_BACKENDS_UV_WORK_DIR=" + filepath.Join(dir, "work-stdio"),
	}}
	for name, target := range map[string][]string{"http": {"http://" + address + "/mcp"}, "stdio": {binary, "mcp"}} {
		if err := m.calls(mcpAtOnce, target); err != nil { // what is started once is there now
			return fmt.Errorf("mcp over %s: %w", name, err)
		}
		before, err := m.left(s, 0)
		if err != nil {
			return err
		}
		held, err := mcpHolds(s)
		if err != nil {
			return err
		}
		if err := m.calls(calls, target); err != nil {
			return fmt.Errorf("mcp over %s: %w", name, err)
		}
		after, err := m.left(s, before)
		if err != nil {
			return fmt.Errorf("mcp over %s: %w", name, err)
		}
		holds, err := held.again(s)
		if err != nil {
			return fmt.Errorf("mcp over %s: %w", name, err)
		}
		fmt.Printf("mcp over %s: processes before %d, after %d; before %v, after %v\n", name, before, after, held, holds)
	}
	if err := m.killedOverHTTP(s, "http://"+address+"/mcp"); err != nil {
		return fmt.Errorf("mcp over http: %w", err)
	}
	if err := m.flood(); err != nil {
		return fmt.Errorf("mcp: a flood: %w", err)
	}
	return m.killed()
}

// mcpSoak is what its parts share.
type mcpSoak struct {
	binary, python, script, minor, dir string
	env                                []string
}

func mcpMinor(s *serve.Server) (string, error) {
	var v struct{ Stdout string }
	err := s.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"import sys; print('%d.%d' % sys.version_info[:2])"}`, &v)
	return strings.TrimSpace(v.Stdout), err
}

func (m *mcpSoak) calls(count int, target []string) error {
	cmd := exec.Command(m.python, append([]string{m.script, strconv.Itoa(count), strconv.Itoa(mcpAtOnce), m.minor}, target...)...) //nolint:gosec // our own script
	cmd.Env = append(os.Environ(), m.env...)
	out, err := cmd.CombinedOutput()
	if count > mcpAtOnce || err != nil {
		fmt.Printf("mcp: %s", out)
	}
	return err
}

// left counts the processes that have to do with the soak, and waits until they are no more than want (0: does not wait).
func (m *mcpSoak) left(s *serve.Server, want int) (int, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		n, err := mcpProcesses(m.dir)
		if err != nil || want == 0 || n <= want {
			return n, err
		}
		if time.Now().After(deadline) {
			return n, fmt.Errorf("%d processes, %d before", n, want)
		}
	}
}

// mcpProcesses counts the processes whose program, environment or folder names dir.
func mcpProcesses(dir string) (n int, err error) {
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		if _, isProcess := strconv.Atoi(e.Name()); isProcess != nil {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if strings.Contains(cwd, dir) || strings.HasPrefix(exe, dir) || strings.Contains(string(env), dir) {
			n++
		}
	}
	return n, err
}

// client is `mcp` with a client that writes JSON-RPC by hand.
func (m *mcpSoak) client() (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader, err error) {
	cmd = exec.Command(m.binary, "mcp")
	cmd.Env = append(os.Environ(), m.env...)
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`+"\n")
	out = bufio.NewReaderSize(pipe, 1<<20)
	if err == nil {
		_, err = out.ReadString('\n')
	}
	return cmd, in, out, err
}

func (m *mcpSoak) call(in io.Writer, code string) error {
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "run_script_with_dependencies", "arguments": map[string]any{"script_content": code, "python_version": m.minor},
		"_meta": map[string]any{"progressToken": "p"},
	}})
	if err == nil {
		_, err = in.Write(append(raw, '\n'))
	}
	return err
}

// flood writes 200 MB through everything; the peak of the command and of its plugins is bounded.
func (m *mcpSoak) flood() error {
	cmd, in, out, err := m.client()
	if err != nil {
		return err
	}
	defer func() { in.Close(); _ = cmd.Wait() }()
	if err := m.call(in, fmt.Sprintf("import sys\nfor _ in range(%d): sys.stdout.write('x' * 99999 + '\\n')", mcpFlood/100_000)); err != nil {
		return err
	}
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.Contains(line, `"id":1`) {
			continue
		}
		if len(line) > 1<<20 {
			return fmt.Errorf("an answer of %d bytes", len(line))
		}
		break
	}
	peaks := map[string]int64{}
	_, peaks["python-executor mcp"] = serve.RSS(cmd.Process.Pid)
	var children []byte // each thread has its own
	entries, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, path := range entries {
		more, _ := os.ReadFile(path) //nolint:gosec // of /proc
		children = append(append(children, ' '), more...)
	}
	for _, field := range strings.Fields(string(children)) {
		pid, _ := strconv.Atoi(field)
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		_, peaks[strings.ReplaceAll(strings.TrimRight(string(raw), "\x00"), "\x00", " ")] = serve.RSS(pid)
	}
	for name, peak := range peaks {
		fmt.Printf("mcp: after a flood of %d MB: %s peaked at %d MiB\n", mcpFlood/1_000_000, name, peak>>20)
		if peak > mcpFloodRSS {
			err = errors.Join(err, fmt.Errorf("%s needed %d MiB", name, peak>>20))
		}
	}
	return err
}

// killed kills a client in the middle of a call, and then the command itself: nothing may be left of either.
func (m *mcpSoak) killed() error {
	for _, what := range []string{"the client's end is closed", "the command is killed"} {
		before, err := mcpProcesses(m.dir)
		if err != nil {
			return err
		}
		cmd, in, out, err := m.client()
		if err != nil {
			return err
		}
		if err := m.call(in, "import subprocess, time\nsubprocess.Popen(['sleep', '4321'], start_new_session=True)\ntime.sleep(1)\nprint('up', flush=True)\ntime.sleep(4321)"); err != nil {
			return err
		}
		for line := ""; !strings.Contains(line, `"message":"up"`); {
			if line, err = out.ReadString('\n'); err != nil {
				return err
			}
		}
		if what == "the command is killed" {
			err = cmd.Process.Kill()
		} else {
			// What a killed client leaves: the ends of both pipes are closed.
			err = errors.Join(in.Close(), cmd.Process.Signal(os.Interrupt))
		}
		if err != nil {
			return err
		}
		_ = cmd.Wait()
		if _, err := m.left(nil, before); err != nil {
			return fmt.Errorf("mcp: %s in the middle of a call: %w", what, err)
		}
		fmt.Printf("mcp: %s in the middle of a call: nothing is left\n", what)
	}
	return nil
}
