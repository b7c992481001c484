package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// pluginPID asks the server which process runs its backend; 0 while it is away.
func (s *server) pluginPID() int {
	var v struct {
		Backends []struct {
			Healthy bool              `json:"healthy"`
			Details map[string]string `json:"details"`
		} `json:"backends"`
	}
	if json.Unmarshal(s.get("/api/v1/backends").body, &v) != nil || len(v.Backends) == 0 || !v.Backends[0].Healthy {
		return 0
	}
	pid, _ := strconv.Atoi(v.Backends[0].Details["pid"])
	return pid
}

// plugin waits until a process runs the server's backend, and returns it. On a busy machine a backend may be away for a moment.
func (s *server) plugin() (pid int) {
	s.t.Helper()
	awaittest.Until(s.t, "a plugin process serves", func() bool { pid = s.pluginPID(); return pid != 0 })
	return pid
}

// stubborn ignores SIGTERM, forks a double-forked child in a session of its own that holds the pipe, and prints "up".
const stubborn = `{"code":"import os,signal,time\nsignal.signal(15,signal.SIG_IGN)\nif os.fork()==0:\n  os.setsid()\n  if os.fork()==0:\n    signal.signal(15,signal.SIG_IGN)\n    time.sleep(600)\n  os._exit(0)\nprint('up')\ntime.sleep(600)"}`

// programs lists the processes of the server's programs.
func (s *server) programs() []int { return leftovertest.Programs(filepath.Join(s.dir, "work")) }

func (s *server) noProgramsLeft() {
	s.t.Helper()
	awaittest.Until(s.t, "no program is left", func() bool { return len(s.programs()) == 0 })
}

// noFoldersLeft: nothing but locks and empty bookkeeping may stay in the work folder.
func (s *server) noFoldersLeft() {
	s.t.Helper()
	awaittest.Until(s.t, "no work folder is left", func() bool {
		found := false
		_ = filepath.WalkDir(filepath.Join(s.dir, "work"), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Name() == "main.py" {
				found = true
			}
			return nil
		})
		return !found
	})
}

func (s *server) up(id string) {
	s.t.Helper()
	awaittest.Until(s.t, id+" prints", func() bool { return s.get("/api/v1/executions/" + id).json(s.t)["stdout"] == "up\n" })
}

func TestKillingThePluginLosesItsExecutionsAndNothingElse(t *testing.T) {
	needtest.Long(t, "TestKillingTheCoreEndsEveryProgramAndTheNextStartRecovers, and the tests of core/host and of the backend")
	s := startServer(t, nil)
	id := s.async(stubborn)
	s.up(id)
	awaittest.Until(t, "the program and its survivor are there", func() bool { return len(s.programs()) >= 2 })
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := s.wait(id, "lost")
	if e, _ := r["error"].(map[string]any); e["code"] != "unavailable" {
		t.Error(r)
	}
	s.noProgramsLeft()
	awaittest.Until(t, "another plugin process serves", func() bool { p := s.pluginPID(); return p != 0 && p != pid })
	awaittest.Until(t, "new executions run", func() bool {
		a := s.post("/api/v1/exec/sync", `{"code":"print(2)"}`)
		return a.status == 200 && a.json(t)["stdout"] == "2\n"
	})
	s.noFoldersLeft()
}

func TestKillingTheCoreEndsEveryProgramAndTheNextStartRecovers(t *testing.T) {
	s := startServer(t, []string{"PYEXEC_ENGINE_MAX_CONCURRENT=1"})
	finished := s.async(`{"code":"print('done')"}`)
	s.wait(finished, "succeeded")
	running := s.async(stubborn)
	s.up(running)
	queued := s.async(`{"code":"print('after')"}`)
	plugin := awaittest.Observe(t, s.plugin())
	s.kill()
	s.noProgramsLeft()
	plugin.Gone(t)

	s.start()
	if r := s.get("/api/v1/executions/" + finished).json(t); r["status"] != "succeeded" || r["stdout"] != "done\n" {
		t.Error(r)
	}
	s.wait(running, "lost")
	if r := s.wait(queued, "succeeded"); r["stdout"] != "after\n" {
		t.Error(r)
	}
	s.noFoldersLeft()
}

func TestKillingCoreAndPluginTogetherIsCleanedUpByTheNextStart(t *testing.T) {
	needtest.Long(t, "TestKillingTheCoreEndsEveryProgramAndTheNextStartRecovers")
	s := startServer(t, nil)
	id := s.async(stubborn)
	s.up(id)
	plugin := s.plugin()
	plugintest.Freeze(t, plugin) // so that it cannot react to the death of the core
	s.kill()
	_ = syscall.Kill(plugin, syscall.SIGKILL)
	s.start()
	s.wait(id, "lost")
	s.noProgramsLeft()
	s.noFoldersLeft()
}

func TestStoppingTheServerEndsEverything(t *testing.T) {
	t.Parallel() // it waits for as long as a server may take to end
	s := startServer(t, nil)
	s.up(s.async(stubborn))
	s.stop()
	s.noProgramsLeft()
	s.noFoldersLeft()
	s.start() // for the clean-up of the test
}
