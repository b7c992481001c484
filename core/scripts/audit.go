package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	auditName = "audit.jsonl"
	// maxAuditBytes is where the audit log is rotated, keptAudits how many old ones stay.
	maxAuditBytes = 10 << 20
	keptAudits    = 5
	// keptRuns is how many files of runs stay, maxRunLog the most that one holds.
	keptRuns  = 1000
	maxRunLog = 1 << 20
	runPrefix = "run-"
)

// auditLine says who ran what, or was refused it (Result is the code), and how it ended. What the script was given as
// environment does not stand in it.
type auditLine struct {
	TS          string   `json:"ts"`
	Tool        string   `json:"tool"`
	Path        string   `json:"path"`
	Args        []string `json:"args"`
	DurationMS  int64    `json:"duration_ms"`
	ExitCode    *int     `json:"exitCode"`
	Signal      string   `json:"signal,omitempty"`
	Result      string   `json:"result"`
	Truncated   bool     `json:"truncated"`
	Requester   string   `json:"requester,omitempty"`
	ExecutionID string   `json:"execution_id"`
	LogPath     string   `json:"logPath,omitempty"`
}

// audit is the folder of logs. The nil audit keeps none.
type audit struct {
	dir string

	mu   sync.Mutex
	file *os.File
	size int64
}

func openAudit(dir string) (*audit, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // none is a valid answer
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &audit{dir: dir}
	return a, a.open()
}

func (a *audit) open() error {
	f, err := os.OpenFile(filepath.Join(a.dir, auditName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.file, a.size = f, st.Size()
	return nil
}

// write appends one line, and rotates first if it would grow too large.
func (a *audit) write(line auditLine) error {
	if a == nil {
		return nil
	}
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return os.ErrClosed
	}
	if a.size > 0 && a.size+int64(len(raw)) > maxAuditBytes {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	n, err := a.file.Write(raw)
	a.size += int64(n)
	return err
}

func (a *audit) rotate() error {
	name := filepath.Join(a.dir, auditName)
	if err := a.file.Close(); err != nil {
		return err
	}
	a.file = nil
	for i := keptAudits - 1; i >= 1; i-- {
		if err := os.Rename(fmt.Sprintf("%s.%d", name, i), fmt.Sprintf("%s.%d", name, i+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(err, a.open())
		}
	}
	return errors.Join(os.Rename(name, name+".1"), a.open())
}

func (a *audit) close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// runLog is the file of one run. The nil runLog keeps nothing.
type runLog struct {
	file *os.File
	left int
	err  error
	last executor.Stream
}

// begin makes the file of one run and removes the oldest ones beyond the bound.
func (a *audit) begin(id string) (*runLog, error) {
	if a == nil {
		return nil, nil //nolint:nilnil // none is a valid answer
	}
	a.mu.Lock()
	a.prune()
	a.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(a.dir, runPrefix+filepath.Base(id)+".log"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &runLog{file: f, left: maxRunLog}, nil
}

// prune removes what is too much. Ids sort by time, so names do.
func (a *audit) prune() {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return // the next write says so
	}
	var runs []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), runPrefix) {
			runs = append(runs, e.Name())
		}
	}
	slices.Sort(runs)
	for len(runs) >= keptRuns {
		os.Remove(filepath.Join(a.dir, runs[0]))
		runs = runs[1:]
	}
}

// write appends a piece of a stream; where the stream changes, a line says so.
func (l *runLog) write(stream executor.Stream, data []byte) {
	if l == nil || l.err != nil || len(data) == 0 || l.left <= 0 {
		return
	}
	if stream != l.last {
		data = append([]byte("--- "+string(stream)+" ---\n"), data...)
		l.last = stream
	}
	if len(data) > l.left {
		data = append(data[:l.left:l.left], "\n--- truncated ---\n"...)
		l.left = 0
	} else {
		l.left -= len(data)
	}
	_, l.err = l.file.Write(data)
}

// end closes the file and returns its name.
func (l *runLog) end() (string, error) {
	if l == nil {
		return "", nil
	}
	return l.file.Name(), errors.Join(l.err, l.file.Close())
}
