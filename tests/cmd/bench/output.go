package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	outputPipe = "10 MiB into a pipe"
	outputSync = "10 MiB through exec/sync"
	outputLogs = "10 MiB through logs"
	outputCPU  = "10 MiB through exec/sync, CPU of core and plugin"
)

var outputSeries = []string{outputPipe, outputSync, outputLogs, outputCPU}

const (
	outputBytes = 10 << 20
	// outputProgram writes lines of 64 bytes, in writes of 64 KiB.
	outputProgram = `import sys\nfor _ in range(160):\n    sys.stdout.write(('x' * 63 + '\\n') * 1024)\n`
	httpOutput    = `{"code":"` + outputProgram + `"}`
)

// output compares a program that writes 10 MiB with the same program into a pipe.
func output(b *bench) error {
	program, err := strconv.Unquote(`"` + outputProgram + `"`)
	if err != nil {
		return err
	}
	script := filepath.Join(b.dir, "output.py")
	if err := os.WriteFile(script, []byte(program), 0o644); err != nil { //nolint:gosec // read by another user
		return err
	}
	plugin := b.server.PluginPID()
	var before int64
	return b.interleaveRounds([]measure{
		{outputPipe, 1, timed(func() error {
			out, err := exec.Command(b.python, script).Output()
			return errors.Join(err, tenMiB(out))
		})},
		{outputSync, 1, func() (time.Duration, error) {
			before = cpu(b.server.PID()) + cpu(plugin)
			return timed(func() error { return syncOutput(b.server) })()
		}},
		{outputCPU, 1, func() (time.Duration, error) { // of the call before
			return time.Duration(cpu(b.server.PID()) + cpu(plugin) - before), nil
		}},
		{outputLogs, 1, timed(func() error { return logsOutput(b.server) })},
	}, max(3, b.rounds/4))
}

// syncOutput reads the answer as a client does that looks for the end of the program's output.
func syncOutput(s *serve.Server) error {
	raw, err := s.Bytes(http.MethodPost, "/api/v1/exec/sync", httpOutput)
	if err == nil && (len(raw) < outputBytes || !bytes.Contains(raw, []byte(`"status":"succeeded"`))) {
		err = fmt.Errorf("%d bytes: %.200s", len(raw), raw)
	}
	return err
}

// logsOutput submits the program and reads its output with ?follow until its end.
func logsOutput(s *serve.Server) error {
	var v struct {
		ID string `json:"execution_id"`
	}
	if err := s.JSON(http.MethodPost, "/api/v1/exec/async", httpOutput, &v); err != nil {
		return err
	}
	raw, err := s.Bytes(http.MethodGet, "/api/v1/executions/"+v.ID+"/logs?follow=true", "")
	return errors.Join(err, tenMiB(raw))
}

func tenMiB(out []byte) error {
	if len(out) != outputBytes {
		return fmt.Errorf("%w: %d of %d bytes", io.ErrUnexpectedEOF, len(out), outputBytes)
	}
	return nil
}

// cpu returns the CPU time of the threads of a process, in nanoseconds.
func cpu(pid int) (sum int64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		raw, _ := os.ReadFile(file)
		if fields := strings.Fields(string(raw)); len(fields) > 0 {
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			sum += n
		}
	}
	return sum
}
