// Package chaos kills processes with SIGKILL under load, and checks that each execution has one right end. The tests use it for seconds,
// and cmd/chaos for minutes. Run kills the plugin of an external backend, and Nomad the parts of the Nomad backend.
package chaos

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// Options say how much is done.
type Options struct {
	// Workers submit executions, one after another each.
	Workers int
	// Kills is how often the plugin is killed. Between is the number of executions that end between two kills.
	Kills   int
	Between int64
}

// Report is what has happened.
type Report struct {
	// Kills is how often something was killed.
	Kills int
	// Succeeded and Lost count executions, and Refused the requests that found no backend, or no server.
	Succeeded, Lost, Refused int64
	// Away is the longest time from a kill to the next success.
	Away time.Duration
}

// String returns r for people.
func (r Report) String() string {
	return fmt.Sprintf("%d kills: %d succeeded, %d lost, %d requests refused meanwhile; back after at most %s",
		r.Kills, r.Succeeded, r.Lost, r.Refused, r.Away.Round(time.Millisecond))
}

// NewServer returns a server, not started, whose one backend is the plugin at path. dir is private and holds all its files.
func NewServer(binary, dir, path string, env ...string) (*serve.Server, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("backend: local\nbackends:\n  local: {path: %q, sha256: %s}\n", path, hex.EncodeToString(sum[:]))
	return &serve.Server{Binary: binary, Dir: dir, Config: config, Env: env}, os.WriteFile(config, []byte(text), 0o600) //nolint:gosec // a folder of the test
}

// load is a run of the load.
type load struct {
	Options
	server *serve.Server
	// marks is the folder in which each program leaves a mark of its run.
	marks string

	next, succeeded, lost, refused atomic.Int64
	enough                         atomic.Bool

	mu     sync.Mutex
	failed []error
}

// Run runs the load on a server of NewServer, which has been started.
func Run(s *serve.Server, o Options) (Report, error) {
	l := &load{Options: o, server: s, marks: filepath.Join(s.Dir, "marks")}
	if err := os.Mkdir(l.marks, 0o700); err != nil {
		return Report{}, err
	}
	var wg sync.WaitGroup
	for range o.Workers {
		wg.Go(func() {
			for !l.enough.Load() {
				l.fail(l.one(l.next.Add(1)))
			}
		})
	}
	away, err := l.kills()
	l.fail(err)
	l.enough.Store(true)
	wg.Wait()
	l.fail(l.nothingLeft())
	return Report{o.Kills, l.succeeded.Load(), l.lost.Load(), l.refused.Load(), away}, errors.Join(l.failed...)
}

// fail notes an error. The first one ends the load.
func (l *load) fail(err error) {
	if err == nil {
		return
	}
	l.enough.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// kills kills the plugin again and again, and returns the longest time that it was away.
func (l *load) kills() (longest time.Duration, err error) {
	for range l.Kills {
		before := l.succeeded.Load()
		if err := serve.Await("executions end between two kills", func() (bool, error) {
			return l.succeeded.Load() >= before+l.Between || l.enough.Load(), nil
		}); err != nil || l.enough.Load() {
			return longest, err
		}
		pid := l.server.PluginPID()
		if pid == 0 {
			return longest, errors.New("the plugin is away although its executions succeed")
		}
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return longest, fmt.Errorf("kill the plugin: %w", err)
		}
		if err := serve.Await("another plugin process serves", func() (bool, error) {
			now := l.server.PluginPID()
			return now != 0 && now != pid, nil
		}); err != nil {
			return longest, err
		}
		before = l.succeeded.Load()
		if err := serve.Await("an execution succeeds after a kill", func() (bool, error) {
			return l.succeeded.Load() > before || l.enough.Load(), nil
		}); err != nil {
			return longest, err
		}
		longest = max(longest, time.Since(killed))
	}
	return longest, nil
}

// execution is the answer of the server.
type execution struct {
	ID     string `json:"execution_id"`
	Status string `json:"status"`
	Stdout string `json:"stdout"`
	Code   *int   `json:"exit_code"`
	// Attempts is how often the execution was handed to the plugin. A plugin that dies between the start of the program and its
	// Started event has run the program, and the next attempt runs it again.
	Attempts int `json:"attempts"`
	Error    struct {
		Code string `json:"code"`
	} `json:"error"`
}

// one submits an execution and checks its end.
func (l *load) one(n int64) error {
	mark := filepath.Join(l.marks, strconv.FormatInt(n, 10))
	code := fmt.Sprintf("import time\nprint(%d)\nopen(%q, 'a').write('x')\ntime.sleep(0.05)\nprint(%d)\n", n, mark, 7*n)
	var x execution
	if err := l.server.JSON(http.MethodPost, "/api/v1/exec/async", fmt.Sprintf(`{"code":%q}`, code), &x); err != nil {
		if strings.Contains(err.Error(), ": 503 ") {
			l.refused.Add(1)
			time.Sleep(50 * time.Millisecond) // the backend is away
			return nil
		}
		return err
	}
	if err := serve.Await(x.ID+" ends", func() (bool, error) {
		err := l.server.JSON(http.MethodGet, "/api/v1/executions/"+x.ID, "", &x)
		return x.Status != "queued" && x.Status != "running", err
	}); err != nil {
		return err
	}
	runs, err := os.ReadFile(mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	whole := fmt.Sprintf("%d\n%d\n", n, 7*n)
	switch {
	case x.Status == "succeeded" && x.Stdout == whole && x.Code != nil && *x.Code == 0 && len(runs) >= 1 && len(runs) <= x.Attempts:
		l.succeeded.Add(1)
	case x.Status == "lost" && strings.HasPrefix(whole, x.Stdout) && x.Code == nil && x.Error.Code == "unavailable" && len(runs) <= x.Attempts:
		l.lost.Add(1)
	default:
		return fmt.Errorf("%s is neither right nor lost: %+v; it ran %d times", x.ID, x, len(runs))
	}
	return nil
}

// nothingLeft checks that no program is left.
func (l *load) nothingLeft() error {
	return serve.Await("no program is left", func() (bool, error) {
		environs, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			return false, err
		}
		for _, name := range environs {
			raw, _ := os.ReadFile(name) // it may have ended
			if bytes.Contains(raw, []byte("HOME="+l.server.Dir)) {
				return false, nil
			}
		}
		return true, nil
	})
}
