package dockerbackend

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// interpreters finds the Python of images. It never changes for an image id, so each image is asked once, in a sandbox.
type interpreters struct {
	factory *factory
	runtime string
	file    string // the file with the answers; empty: none
	asking  *backend.Group[runner.Interpreter]

	mu    sync.Mutex
	known map[string]runner.Interpreter
}

// maxKnown bounds the remembered answers.
const maxKnown = 1000

// The limits of a sandbox that asks an interpreter.
const (
	askMemory = 256 << 20
	askDisk   = 16 << 20
)

// newInterpreters returns interpreters whose queries end with base at the latest.
func newInterpreters(base context.Context, f *factory, runtime string) *interpreters {
	return &interpreters{factory: f, runtime: runtime, asking: backend.NewGroup[runner.Interpreter](base), known: map[string]runner.Interpreter{}}
}

// find returns an image's interpreter. Codes: those of a container that cannot be made, unavailable (ctx ended first).
func (n *interpreters) find(ctx context.Context, image imageInfo) (runner.Interpreter, error) {
	if i, ok := n.answered(image); ok {
		return i, nil
	}
	i, err := n.asking.Do(ctx, image.ID, backend.NoProgress, func(ctx context.Context, _ func(executor.Progress)) (runner.Interpreter, error) {
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

func (n *interpreters) answered(image imageInfo) (runner.Interpreter, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.known[image.ID]
	return i, ok
}

// ask looks in a sandbox of the image.
func (n *interpreters) ask(ctx context.Context, image imageInfo) (runner.Interpreter, error) {
	limits := executor.Limits{
		Timeout: runner.InterpreterTimeout, MemoryBytes: askMemory, DiskBytes: askDisk, CPUShares: 1024, PIDs: 64,
	}
	s, err := n.factory.make(ctx, class{Image: image.ID, Runtime: n.runtime, DiskBytes: askDisk}, capacityOf(limits))
	if err != nil {
		return runner.Interpreter{}, err
	}
	defer n.factory.discard(s)
	i, err := s.conn.Interpreter(ctx, runner.Start{Path: image.Path, Network: true, Limits: limits})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return i, err
}

// remember stores an answer.
func (n *interpreters) remember(image string, i runner.Interpreter) {
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
	known := map[string]runner.Interpreter{}
	if json.Unmarshal(raw, &known) == nil {
		maps.Copy(n.known, known)
	}
}
