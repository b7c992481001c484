package dockerbackend

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// interpreter is an image's Python. Without a Path the image has none.
type interpreter struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"` // "3.12.1"
}

// minor returns the minor version, "3.12".
func (i interpreter) minor() string {
	parts := strings.SplitN(i.Version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

func (i interpreter) orNone() string {
	if i.Version == "" {
		return "none"
	}
	return i.Version
}

// interpreters finds the Python of images. It never changes for an image id, so each image is asked once, in a sandbox.
type interpreters struct {
	factory *factory
	runtime string
	file    string // the file with the answers; empty: none
	asking  *backend.Group[interpreter]

	mu    sync.Mutex
	known map[string]interpreter
}

// maxKnown bounds the remembered answers.
const maxKnown = 1000

// The limits of a sandbox that runs askProgram.
const (
	askTime   = 60 * time.Second
	askMemory = 256 << 20
	askDisk   = 16 << 20
)

// askProgram prints the interpreter's path and version.
const askProgram = `import json, sys
print(json.dumps({"path": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3]}))`

// newInterpreters returns interpreters whose queries end with base at the latest.
func newInterpreters(base context.Context, f *factory, runtime string) *interpreters {
	return &interpreters{factory: f, runtime: runtime, asking: backend.NewGroup[interpreter](base), known: map[string]interpreter{}}
}

// find returns an image's interpreter. Codes: those of a container that cannot be made, unavailable (ctx ended first).
func (n *interpreters) find(ctx context.Context, image imageInfo) (interpreter, error) {
	if i, ok := n.answered(image); ok {
		return i, nil
	}
	i, err := n.asking.Do(ctx, image.ID, backend.NoProgress, func(ctx context.Context, _ func(executor.Progress)) (interpreter, error) {
		if i, ok := n.answered(image); ok {
			return i, nil
		}
		i, err := n.ask(ctx, image)
		if err == nil {
			n.remember(image.ID, i)
		}
		return i, err
	})
	if err != nil && ctx.Err() != nil {
		err = executor.Errorf(executor.Unavailable, "look for an interpreter: %w", err)
	}
	return i, err
}

func (n *interpreters) answered(image imageInfo) (interpreter, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.known[image.ID]
	return i, ok
}

// ask runs askProgram in a sandbox of the image.
func (n *interpreters) ask(ctx context.Context, image imageInfo) (interpreter, error) {
	limits := executor.Limits{
		Timeout: askTime, MemoryBytes: askMemory, DiskBytes: askDisk, CPUShares: 1024, PIDs: 64, OutputBytes: 64 << 10, KillGrace: time.Second,
	}
	s, err := n.factory.make(ctx, class{Image: image.ID, Runtime: n.runtime, DiskBytes: askDisk}, capacityOf(limits))
	if err != nil {
		return interpreter{}, err
	}
	defer n.factory.discard(s)
	for _, name := range []string{"python3", "python"} {
		var out strings.Builder
		r, err := s.conn.Run(ctx, runner.Start{
			ExecutionID: "interpreter", Command: []string{name, "-c", askProgram}, Path: image.Path, Network: true, Limits: limits,
		}, runner.RunInput{}, backend.Output{Stdout: &out, Stderr: io.Discard})
		if err != nil {
			return interpreter{}, err
		}
		var i interpreter
		if r.Status == executor.StatusSucceeded && json.Unmarshal([]byte(out.String()), &i) == nil && i.Path != "" {
			return i, nil
		}
		if ctx.Err() != nil {
			return interpreter{}, context.Cause(ctx)
		}
	}
	return interpreter{}, nil
}

// remember stores an answer.
func (n *interpreters) remember(image string, i interpreter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= maxKnown {
		clear(n.known)
	}
	n.known[image] = i
	if n.file == "" {
		return
	}
	n.load() // answers that other processes have written
	raw, err := json.Marshal(n.known)
	fresh := n.file + "." + random()
	if err == nil {
		err = os.WriteFile(fresh, raw, 0o600)
	}
	if err == nil {
		err = os.Rename(fresh, n.file)
	}
	if err != nil {
		n.factory.log.Warn("write the interpreters of images", "file", filepath.Base(n.file), "error", err)
	}
}

// keep stores the answers on disk, in dataDir. The data folder of an embedded call does not outlive it, so its answers are in
// the user's cache folder.
func (n *interpreters) keep(dataDir string, embedded bool) {
	if embedded {
		dataDir = ""
		if cache, err := os.UserCacheDir(); err == nil {
			dataDir = filepath.Join(cache, "python-executor", "docker")
			if os.MkdirAll(dataDir, 0o700) != nil {
				return
			}
		}
	}
	if dataDir == "" {
		return
	}
	n.file = filepath.Join(dataDir, "interpreters.json")
	n.load()
}

// load adds the answers in the file. It ignores a file that cannot be read.
func (n *interpreters) load() {
	raw, err := os.ReadFile(n.file)
	if err != nil {
		return
	}
	known := map[string]interpreter{}
	if json.Unmarshal(raw, &known) == nil {
		maps.Copy(n.known, known)
	}
}
