// Command soak submits async executions while it kills the core with SIGKILL, and checks that every accepted id reaches
// exactly one terminal state and that only what was running at a kill is lost. Where a Docker is at hand the same is done to
// its backend: there a program outlives core and plugin (see containers).
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

func main() {
	binary := flag.String("binary", "bin/python-executor", "the program under test")
	count := flag.Int("executions", 10000, "async executions")
	kills := flag.Int("kills", 3, "kill -9 of the core in between")
	rounds := flag.Int("docker-rounds", 200, "rounds of kill -9 on the Docker backend; 0 leaves it out")
	mcp := flag.Int("mcp-calls", 1000, "calls over each transport of MCP; 0 leaves it out")
	sessions := flag.Int("sessions", 1000, "sessions that are opened, used and ended; 0 leaves them out")
	inContainers := flag.Int("docker-sessions", 100, "the same on the Docker backend")
	flag.Parse()
	path, err := filepath.Abs(*binary)
	if err == nil {
		err = run(path, *count, *kills)
	}
	if err == nil {
		err = runSessions(path, "sessions", *sessions, nil)
	}
	if err == nil && *rounds > 0 {
		err = runContainers(path, *rounds)
	}
	if err == nil {
		err = runSessionsInContainers(path, *inContainers)
	}
	if err == nil && *mcp > 0 {
		err = runMCP(path, *mcp)
	}
	if err = errors.Join(err, dockertest.Stop()); err != nil { // the one that two of them share
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

type state struct {
	ID     string `json:"execution_id"`
	Status string `json:"status"`
	Stdout string `json:"stdout"`
}

func run(binary string, count, kills int) error {
	if count == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "pyexec-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	s := &serve.Server{Binary: path, Dir: dir, Env: []string{fmt.Sprintf("PYEXEC_ENGINE_MAX_QUEUED=%d", count+100), fmt.Sprintf("PYEXEC_RETENTION_MAX_EXECUTIONS=%d", 2*count)}}
	if err := s.Start(); err != nil {
		return err
	}
	defer func() { s.Stop() }()

	begin := time.Now()
	var mu sync.RWMutex // held for reading by submitters, for writing by the killer, so that a kill meets no half-sent request
	var ids sync.Map
	var accepted, refused atomic.Int64
	lostAllowed := 0
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				mu.RLock()
				var v state
				err := s.JSON(http.MethodPost, "/api/v1/exec/async", fmt.Sprintf(`{"code":"print(%d)","idempotency_key":"soak-%d"}`, i, i), &v)
				mu.RUnlock()
				if err != nil {
					refused.Add(1)
					fmt.Fprintln(os.Stderr, "submit:", err)
					continue
				}
				accepted.Add(1)
				ids.Store(v.ID, i)
			}
		})
	}
	before := map[string]string{} // what was terminal and seen before a kill must stay as it was
	kill := func(when string) error {
		mu.Lock()
		defer mu.Unlock()
		var list struct {
			Executions []state `json:"executions"`
		}
		for _, status := range []string{"succeeded", "lost"} {
			if err := s.JSON(http.MethodGet, "/api/v1/executions?limit=500&status="+status, "", &list); err != nil {
				return err
			}
			for _, e := range list.Executions {
				before[e.ID] = e.Status
			}
		}
		s.Kill()
		if err := s.Start(); err != nil {
			return fmt.Errorf("start after kill -9: %w", err)
		}
		lostAllowed += max(4, 2*runtime.NumCPU()) // engine.max_concurrent
		fmt.Printf("killed -9 %s, back after %s\n", when, time.Since(begin).Round(time.Millisecond))
		return nil
	}
	for i := range count {
		if i == count/2 && kills > 0 { // the first while executions are being accepted
			if err := kill(fmt.Sprintf("after %d submits", i)); err != nil {
				return err
			}
		}
		work <- i
	}
	close(work)
	wg.Wait()
	fmt.Printf("accepted %d, refused %d in %s\n", accepted.Load(), refused.Load(), time.Since(begin).Round(time.Millisecond))
	byNumber := map[int]string{}
	ids.Range(func(id, i any) bool { byNumber[i.(int)] = id.(string); return true })
	for k := 1; k < kills; k++ { // the others while they run: they start in the order in which they came
		i := k * count / kills
		for {
			var v state
			if err := s.JSON(http.MethodGet, "/api/v1/executions/"+byNumber[i], "", &v); err != nil {
				return err
			}
			if v.Status != "queued" {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := kill(fmt.Sprintf("when number %d had started", i)); err != nil {
			return err
		}
	}

	statuses := map[string]int{}
	deadline := time.Now().Add(30 * time.Minute)
	var failure error
	ids.Range(func(id, i any) bool {
		for {
			var v state
			if err := s.JSON(http.MethodGet, "/api/v1/executions/"+id.(string), "", &v); err != nil {
				failure = err
				return false
			}
			if v.Status != "queued" && v.Status != "running" {
				statuses[v.Status]++
				if v.Status == "succeeded" && v.Stdout != fmt.Sprintf("%d\n", i) {
					failure = fmt.Errorf("%s printed %q, want %d", id, v.Stdout, i)
					return false
				}
				if was, ok := before[v.ID]; ok && was != v.Status {
					failure = fmt.Errorf("%s was %s before a kill and is %s", id, was, v.Status)
					return false
				}
				return true
			}
			if time.Now().After(deadline) {
				failure = fmt.Errorf("%s is still %s", id, v.Status)
				return false
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if failure != nil {
		return failure
	}
	core, corePeak := serve.RSS(s.PID())
	plugin, pluginPeak := serve.RSS(s.PluginPID())
	fmt.Printf("terminal states %v in %s; RSS core %d MiB (peak %d), plugin %d MiB (peak %d)\n", statuses, time.Since(begin).Round(time.Millisecond), core>>20, corePeak>>20, plugin>>20, pluginPeak>>20)
	if statuses["succeeded"]+statuses["lost"] != int(accepted.Load()) {
		return fmt.Errorf("some ended neither succeeded nor lost: %v", statuses)
	}
	if statuses["lost"] > lostAllowed {
		return fmt.Errorf("%d lost, at most %d could have been running", statuses["lost"], lostAllowed)
	}
	if refused.Load() > 0 {
		return fmt.Errorf("%d submits were refused", refused.Load())
	}
	return nil
}
