// Package serve starts `python-executor serve` for the benchmark and the soak: a private data folder, a free port, kill -9.
package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// Server is one running server.
type Server struct {
	// Binary is the program; Dir holds its data and work folders; Env is added to the environment.
	Binary string
	Dir    string
	Env    []string
	// Bind is the listening address. Default 127.0.0.1:0, a port that is free at each start.
	Bind string
	// Config is a file for --config, instead of the settings for the uv backend.
	Config string
	// UID is the user and the group of the server; 0: those of this process.
	UID uint32
	// URL is set by Start.
	URL    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts the server and returns when it is ready. It may be called again after Kill or Stop.
func (s *Server) Start() error {
	bind := cmp.Or(s.Bind, "127.0.0.1:0")
	host, _, err := net.SplitHostPort(bind)
	if err != nil {
		return err
	}
	s.cmd = exec.Command(s.Binary, "serve")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PYEXEC_") {
			s.cmd.Env = append(s.cmd.Env, kv)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "PYEXEC_HTTP_BIND="+bind, "PYEXEC_DATA_DIR="+filepath.Join(s.Dir, "data"))
	if s.Config != "" {
		s.cmd.Args = append(s.cmd.Args, "--config", s.Config)
	} else {
		s.cmd.Env = append(s.cmd.Env, "PYEXEC_BACKENDS_UV_WORK_DIR="+filepath.Join(s.Dir, "work"),
			"PYEXEC_BACKENDS_UV_CACHE_DIR="+filepath.Join(s.Dir, "cache"))
	}
	s.cmd.Env = append(s.cmd.Env, s.Env...)
	if s.UID != 0 {
		s.cmd.Dir = s.Dir
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.UID, Gid: s.UID}}
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.exited = make(chan struct{})
	address := make(chan string, 1)
	go func() {
		defer close(s.exited)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			if i := strings.Index(line, "http://"+host+":"); i >= 0 {
				select {
				case address <- strings.TrimRight(strings.FieldsFunc(line[i:], func(r rune) bool { return strings.ContainsRune(" \t\n\"'", r) })[0], "/"):
				default:
				}
			}
			if err != nil {
				break
			}
		}
		_ = s.cmd.Wait()
	}()
	select {
	case s.URL = <-address:
	case <-s.exited:
		return errors.New("serve ended at once")
	case <-time.After(awaittest.Bound):
		s.Kill()
		return errors.New("serve printed no address")
	}
	err = Await("the server is ready", func() (bool, error) {
		select {
		case <-s.exited:
			return false, errors.New("serve ended before it was ready")
		default:
		}
		resp, err := http.Get(s.URL + "/readyz") //nolint:gosec // our own loopback address
		if err != nil {
			return false, nil
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		s.Kill()
	}
	return err
}

// Await asks until ok returns true or an error, for awaittest.Bound at most. It is for what another process does.
func Await(what string, ok func() (bool, error)) error {
	for end := time.Now().Add(awaittest.Bound); ; time.Sleep(20 * time.Millisecond) {
		done, err := ok()
		if done || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("never happened: %s", what)
		}
	}
}

// Kill ends the core with SIGKILL and waits for it.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Stop ends the server with SIGTERM; after a minute with SIGKILL.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		s.Kill()
	}
}

// PID is the core's.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// PluginPID is the backend plugin's, 0 while it is away.
func (s *Server) PluginPID() int {
	var v struct {
		Backends []struct {
			Details map[string]string `json:"details"`
		} `json:"backends"`
	}
	if err := s.JSON(http.MethodGet, "/api/v1/backends", "", &v); err != nil || len(v.Backends) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(v.Backends[0].Details["pid"])
	return pid
}

// client keeps a connection for each of many callers at once. The default client keeps two, and opens others anew for each call.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// CloseIdle closes the connections that no call uses.
func CloseIdle() { client.CloseIdleConnections() }

// JSON sends a JSON body (or none) and decodes the answer; a status of 400 and more is an error.
func (s *Server) JSON(method, path, body string, out any) error {
	b, err := s.Bytes(method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// Bytes sends a JSON body (or none) and returns the answer; a status of 400 and more is an error.
func (s *Server) Bytes(method, path, body string) ([]byte, error) {
	var reader io.Reader
	if body != "" {
		reader = bytes.NewReader([]byte(body))
	}
	req, err := http.NewRequest(method, s.URL+path, reader) //nolint:noctx // bounded by the server's own limits
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = fmt.Errorf("%s %s: %d %.200s", method, path, resp.StatusCode, b)
	}
	return b, err
}

// RSS returns a process's resident memory and its high-water mark in bytes, 0 if it is gone.
func RSS(pid int) (now, peak int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kb << 10
		case "VmHWM:":
			peak = kb << 10
		}
	}
	return now, peak
}

// FreeAddress returns a port of a loopback address that nobody else uses, so that the port stays free while a server is away. The port
// is below those that the kernel gives to whoever asks for any: it is likely to be free at all addresses of this host.
func FreeAddress() (address string, err error) {
	for range 10 {
		address = fmt.Sprintf("127.%d.%d.%d:%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254), 10_000+rand.IntN(20_000)) //nolint:gosec // no secret
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", err
}
