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
	// maxAuditBytes is the size at which the audit log is rotated.
	maxAuditBytes = 10 << 20
	// keptAudits is the number of rotated audit logs that are kept.
	keptAudits = 5
	// keptRuns is the number of run logs that are kept.
	keptRuns = 1000
	// maxRunLog bounds the size of a run log.
	maxRunLog = 1 << 20
	runPrefix = "run-"
)

// auditLine is the audit record of a run or of a refused request. Result is the Status of the run, or the error code. The
// environment of the script is not recorded.
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

// audit is the folder of the logs. A nil audit writes no logs.
type audit struct {
	dir string

	mu   sync.Mutex
	file *os.File
	size int64
}

func openAudit(dir string) (*audit, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // a nil audit is valid
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

// write appends one line. It rotates the log first if the log would exceed maxAuditBytes.
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

// runLog is the log file of one run. A nil runLog writes nothing.
type runLog struct {
	file *os.File
	left int
	err  error
	last executor.Stream
}

// begin creates the log file of one run and removes the oldest files beyond keptRuns.
func (a *audit) begin(id string) (*runLog, error) {
	if a == nil {
		return nil, nil //nolint:nilnil // a nil runLog is valid
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

// prune removes the oldest log files of runs so that a new one fits. Ids sort by time, and therefore file names do.
func (a *audit) prune() {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return // creating the new file reports the error
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

// write appends a piece of a stream. When the stream changes, it first writes a line with the name of the stream.
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

// end closes the file and returns its path, and the first error of a write.
func (l *runLog) end() (string, error) {
	if l == nil {
		return "", nil
	}
	return l.file.Name(), errors.Join(l.err, l.file.Close())
}
