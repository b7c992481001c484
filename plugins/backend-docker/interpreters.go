package dockerbackend

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// interpreter is an image's Python; without a Path there is none.
type interpreter struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"` // "3.12.1"
}

// minor is the minor version, "3.12".
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

// interpreters knows each image's Python. What an image has never changes, so each is asked once, in a sandbox.
type interpreters struct {
	factory *factory
	runtime string
	file    string          // where the answers are kept; empty: nowhere
	base    context.Context //nolint:containedctx // who asks first may leave while others wait
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup

	mu     sync.Mutex
	known  map[string]interpreter
	asking map[string]*question
}

// question is one that is being asked. err and found are set before done is closed.
type question struct {
	done  chan struct{}
	found interpreter
	err   error
}

// maxKnown bounds what is remembered.
const maxKnown = 1000

// The limits of a sandbox that asks.
const (
	askTime   = 60 * time.Second
	askMemory = 256 << 20
	askDisk   = 16 << 20
)

// askProgram prints where the interpreter is and what it is.
const askProgram = `import json, sys
print(json.dumps({"path": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3]}))`

func newInterpreters(f *factory, runtime string) *interpreters {
	base, stop := context.WithCancelCause(context.Background())
	return &interpreters{factory: f, runtime: runtime, base: base, stop: stop, known: map[string]interpreter{}, asking: map[string]*question{}}
}

// close waits for what is being asked. Nobody asks any more.
func (n *interpreters) close() {
	n.stop(errClosed)
	n.wg.Wait()
}

// find returns an image's interpreter. Codes: those of a container that cannot be made.
func (n *interpreters) find(ctx context.Context, image imageInfo) (interpreter, error) {
	n.mu.Lock()
	i, ok := n.known[image.ID]
	if ok {
		n.mu.Unlock()
		return i, nil
	}
	q := n.asking[image.ID]
	if q == nil {
		q = &question{done: make(chan struct{})}
		n.asking[image.ID] = q
		n.wg.Go(func() {
			q.found, q.err = n.ask(n.base, image)
			n.answered(image.ID, q)
		})
	}
	n.mu.Unlock()
	select {
	case <-q.done:
		return q.found, q.err
	case <-ctx.Done():
		return interpreter{}, executor.Errorf(executor.Unavailable, "look for an interpreter: %w", context.Cause(ctx))
	}
}

func (n *interpreters) answered(image string, q *question) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asking, image)
	if q.err == nil {
		n.remember(image, q.found)
	}
	close(q.done)
}

// ask starts a sandbox of the image and asks what is there.
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
		var out answer
		r, err := s.conn.Run(ctx, runner.Start{
			ExecutionID: "interpreter", Command: []string{name, "-c", askProgram}, Path: programPath(image.Path), Network: true, Limits: limits,
		}, runner.RunInput{}, &out)
		if err != nil {
			return interpreter{}, err
		}
		var i interpreter
		if r.Status == executor.StatusSucceeded && json.Unmarshal([]byte(out.text.String()), &i) == nil && i.Path != "" {
			return i, nil
		}
		if ctx.Err() != nil {
			return interpreter{}, executor.Errorf(executor.Unavailable, "look for an interpreter: %w", context.Cause(ctx))
		}
	}
	return interpreter{}, nil
}

// answer keeps what a program prints.
type answer struct{ text, errors strings.Builder }

// Emit implements executor.Sink.
func (a *answer) Emit(e executor.Event) error {
	if o, ok := e.Body.(executor.Output); ok {
		if o.Stream == executor.Stdout {
			a.text.Write(o.Data)
		} else {
			a.errors.Write(o.Data)
		}
	}
	return nil
}

// Artifact implements executor.Sink.
func (a *answer) Artifact(*tar.Header, io.Reader) error { return nil }

// remember keeps an answer. The lock is held.
func (n *interpreters) remember(image string, i interpreter) {
	if len(n.known) >= maxKnown {
		clear(n.known)
	}
	n.known[image] = i
	if n.file == "" {
		return
	}
	n.load() // what others have written meanwhile
	raw, err := json.Marshal(n.known)
	fresh := n.file + "." + random()
	if err == nil {
		err = os.WriteFile(fresh, raw, 0o600)
	}
	if err == nil {
		err = os.Rename(fresh, n.file)
	}
	if err != nil {
		n.factory.log.Warn("what images have is not on disk", "file", filepath.Base(n.file), "error", err)
	}
}

// keep makes the answers outlive the process: in its folder, or, of a single call, whose folder goes with it, in the user's
// cache.
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

// load reads what others have found out. A file that cannot be read is one that is not there.
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
