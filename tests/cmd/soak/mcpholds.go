package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	// goroutineSlack and descriptorSlack are how many more there may be than before: connections that are kept for the next
	// call come and go.
	goroutineSlack  = 20
	descriptorSlack = 10
)

// mcpHeld is what a server holds: goroutines of the core, descriptors of the core and of the MCP plugin, threads of the
// plugin (it has no /metrics), sessions that are not closed, executions that run.
type mcpHeld struct {
	goroutines, coreFDs, pluginFDs, pluginThreads, sessions, running int
}

func (h mcpHeld) String() string {
	return fmt.Sprintf("%d goroutines, %d+%d descriptors, %d threads, %d sessions, %d running",
		h.goroutines, h.coreFDs, h.pluginFDs, h.pluginThreads, h.sessions, h.running)
}

func mcpHolds(s *serve.Server) (mcpHeld, error) {
	var h mcpHeld
	resp, err := http.Get(s.URL + "/metrics") //nolint:gosec // our own loopback address
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			h.goroutines, _ = strconv.Atoi(n)
		}
	}
	if h.goroutines == 0 {
		return h, errors.New("/metrics has no go_goroutines")
	}
	var sessions struct {
		Sessions []struct {
			Status string `json:"status"`
		} `json:"sessions"`
	}
	var executions struct {
		Executions []json.RawMessage `json:"executions"`
	}
	if err := errors.Join(s.JSON(http.MethodGet, "/api/v1/sessions", "", &sessions), s.JSON(http.MethodGet, "/api/v1/executions?status=running", "", &executions)); err != nil {
		return h, err
	}
	for _, x := range sessions.Sessions {
		if x.Status != "closed" {
			h.sessions++
		}
	}
	h.running = len(executions.Executions)
	count := func(pid int, what string) int {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, what))
		return len(entries)
	}
	h.coreFDs = count(s.PID(), "fd")
	if pid := mcpPluginPID(s.PID()); pid != 0 {
		h.pluginFDs, h.pluginThreads = count(pid, "fd"), count(pid, "task")
	}
	return h, nil
}

// mcpPluginPID is the MCP plugin of a core; 0: there is none.
func mcpPluginPID(core int) int {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range entries {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		raw, _ := os.ReadFile(path) //nolint:gosec // of /proc
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if strings.Contains(string(raw), "\x00frontend-mcp\x00") && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", core)) {
			return pid
		}
	}
	return 0
}

// again waits until the server holds no more than h.
func (h mcpHeld) again(s *serve.Server) (now mcpHeld, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if now, err = mcpHolds(s); err != nil {
			return now, err
		}
		if now.goroutines <= h.goroutines+goroutineSlack && now.coreFDs <= h.coreFDs+descriptorSlack && now.pluginFDs <= h.pluginFDs+descriptorSlack &&
			now.sessions <= h.sessions && now.running <= h.running {
			return now, nil
		}
		if time.Now().After(deadline) {
			return now, fmt.Errorf("the server holds %v, %v before", now, h)
		}
	}
}

// killedOverHTTP leaves in the middle of a call as a client does that is killed: its connection is reset. Nothing may go on.
func (m *mcpSoak) killedOverHTTP(s *serve.Server, endpoint string) error {
	target, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	before, err := mcpProcesses(m.dir)
	if err != nil {
		return err
	}
	held, err := mcpHolds(s)
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", target.Host) //nolint:noctx // our own loopback address
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it is closed below
	in := bufio.NewReader(conn)
	send := func(session, body string) error {
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s",
			target.Path, target.Host, session, len(body), body)
		return err
	}
	if err := send("", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	resp.Body.Close() //nolint:errcheck // it was read
	var call strings.Builder
	if err := m.call(&call, "import subprocess, time\nsubprocess.Popen(['sleep', '4321'], start_new_session=True)\ntime.sleep(1)\nprint('up', flush=True)\ntime.sleep(4321)"); err != nil {
		return err
	}
	if err := send("Mcp-Session-Id: "+resp.Header.Get("Mcp-Session-Id")+"\r\n", strings.TrimSpace(call.String())); err != nil {
		return err
	}
	for line := ""; !strings.Contains(line, `"message":"up"`); {
		if line, err = in.ReadString('\n'); err != nil {
			return err
		}
	}
	if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil { //nolint:forcetypeassert // it was dialled so
		return err
	}
	after, err := m.left(s, before)
	if err != nil {
		return fmt.Errorf("the client is killed in the middle of a call: %w", err)
	}
	holds, err := held.again(s)
	if err != nil {
		return fmt.Errorf("the client is killed in the middle of a call: %w", err)
	}
	fmt.Printf("mcp: an HTTP client is killed in the middle of a call: processes before %d, after %d; before %v, after %v\n", before, after, held, holds)
	return nil
}
