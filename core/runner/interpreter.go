package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Interpreter is a Python. Without a Path there is none.
type Interpreter struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"` // "3.12.1"
}

// Minor returns the minor version, "3.12".
func (i Interpreter) Minor() string {
	parts := strings.SplitN(i.Version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// VersionOrNone returns the version, or "none".
func (i Interpreter) VersionOrNone() string {
	if i.Version == "" {
		return "none"
	}
	return i.Version
}

// InterpreterTimeout bounds how long an interpreter may take to tell its version.
const InterpreterTimeout = 60 * time.Second

// interpreterProgram prints the interpreter's path and version.
const interpreterProgram = `import json, sys
print(json.dumps({"path": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3]}))`

// Interpreter finds the Python on Path: python3, then python. It runs them with the Path, Network and Limits of start, each for at most
// Limits.Timeout. If ctx ends, the result has no meaning. Codes: unavailable (an interpreter does not answer in time), those of Run.
func (c *Conn) Interpreter(ctx context.Context, start Start) (Interpreter, error) {
	limits := start.Limits
	limits.OutputBytes, limits.KillGrace, limits.CPUTime = 64<<10, time.Second, 0 // a job's CPU time is its program's
	for _, name := range []string{"python3", "python"} {
		var said answer
		r, err := c.Run(ctx, Start{
			ExecutionID: "interpreter", Command: []string{name, "-I", "-c", interpreterProgram}, Path: start.Path, Network: start.Network, Limits: limits,
		}, RunInput{}, &said)
		if err != nil {
			return Interpreter{}, fmt.Errorf("look for an interpreter: %w", err)
		}
		var i Interpreter
		switch {
		case r.Status == executor.StatusSucceeded && json.Unmarshal(said.Bytes(), &i) == nil && i.Path != "":
			return i, nil
		case r.Status == executor.StatusTimedOut:
			return Interpreter{}, executor.Errorf(executor.Unavailable, "look for an interpreter: %s did not tell its version within %s", name, limits.Timeout)
		case ctx.Err() != nil:
			return Interpreter{}, nil
		}
	}
	return Interpreter{}, nil
}

// answer is a Sink that keeps stdout.
type answer struct{ bytes.Buffer }

// Emit implements executor.Sink.
func (a *answer) Emit(e executor.Event) error {
	if o, ok := e.Body.(executor.Output); ok && o.Stream == executor.Stdout {
		a.Write(o.Data)
	}
	return nil
}

// Artifact implements executor.Sink.
func (a *answer) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
