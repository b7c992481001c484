package tests

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestKillingThePluginLosesItsSessionsAndSaysWhy(t *testing.T) {
	needtest.Long(t, "TestKillingTheCoreLosesTheSessionsOfUVAndTheNextStartSaysSo")
	s := startServer(t, nil)
	id := s.session(`{}`)
	s.cell(id, "import subprocess; p = subprocess.Popen(['sleep', '600'])")
	running := s.startCell(id, "print('up', flush=True)\nimport time; time.sleep(600)")
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.wait(running, "lost")
	awaittest.Until(t, "the session is lost", func() bool { return s.look(id)["status"] == "lost" })
	if v := s.look(id); !strings.Contains(fmt.Sprint(v["reason"]), "backend uv") {
		t.Errorf("%v", v)
	}
	s.noProgramsLeft()
	awaittest.Until(t, "another plugin process serves", func() bool { p := s.pluginPID(); return p != 0 && p != pid })
	if a := s.post("/api/v1/exec/sync", codeIn(id, "1")); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.expect(s.session(`{}`), "1 + 1", "2")
}

func TestKillingTheCoreLosesTheSessionsOfUVAndTheNextStartSaysSo(t *testing.T) {
	s := startServer(t, nil)
	id := s.session(`{"name":"mine"}`)
	s.cell(id, "import subprocess; p = subprocess.Popen(['sleep', '600'])")
	plugin := awaittest.Observe(t, s.plugin())
	s.kill()
	s.noProgramsLeft()
	plugin.Gone(t)
	s.start()
	if v := s.look(id); v["status"] != "lost" || v["reason"] == nil || v["name"] != "mine" {
		t.Errorf("%v", v)
	}
	s.noFoldersLeft()
	s.expect(s.session(`{}`), "1 + 1", "2")
}

func TestSessionsInContainersOutliveThePluginAndTheCore(t *testing.T) {
	s := startDocker(t)
	ids := map[string]string{}
	for language, say := range languages {
		ids[language] = s.session(`{"language":"` + language + `"}`)
		s.cell(ids[language], say.set)
		s.cell(ids[language], say.append)
	}
	held := func(when string) {
		t.Helper()
		for language, say := range languages {
			id := ids[language]
			awaittest.Until(t, language+" answers "+when, func() bool {
				a := s.post("/api/v1/exec/sync", codeIn(id, say.add))
				if a.status == http.StatusConflict || a.status == http.StatusNotFound {
					t.Fatalf("%s: %d %s; %v", when, a.status, a.body, s.look(id))
				}
				return a.status == http.StatusOK && says(a.json(t)) == "101"
			})
			s.expect(id, say.count, "1")
			if v := s.look(id); v["status"] != "active" || v["restarts"] != 0.0 {
				t.Errorf("%s: %v", when, v)
			}
		}
	}
	counting := codeIn(ids["python"], "import time\nfor i in range(40):\n  print(i, flush=True); time.sleep(0.1)")
	var all strings.Builder
	for i := range 40 {
		fmt.Fprintln(&all, i)
	}

	running := s.async(counting)
	s.prints(running)
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(running, "succeeded", "failed", "lost", "killed"); r["status"] != "succeeded" || r["stdout"] != all.String() {
		t.Errorf("after the plugin was killed: %v", r)
	}
	held("after the plugin was killed")

	running = s.async(counting)
	s.prints(running)
	plugin := awaittest.Observe(t, s.plugin())
	s.kill()
	plugin.Gone(t)
	s.start()
	if r := s.wait(running, "succeeded", "failed", "lost", "killed"); r["status"] != "succeeded" || r["stdout"] != all.String() {
		t.Errorf("after the core was killed: %v", r)
	}
	held("after the core was killed")
}
