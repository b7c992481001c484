package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// onBothBackends runs a test on uv and, in a long part, on docker.
func onBothBackends(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("uv", func(t *testing.T) { test(t, startServer(t, nil)) })
	t.Run("docker", func(t *testing.T) {
		needtest.Long(t, "the law on the docker backend, and TestSessionsInContainersOutliveThePluginAndTheCore")
		test(t, startDocker(t))
	})
}

// session opens one and returns its id; body may name anything of it.
func (s *server) session(body string) string {
	s.t.Helper()
	a := s.post("/api/v1/sessions", body)
	if a.status != http.StatusCreated {
		s.t.Fatalf("open %s: %d %s", body, a.status, a.body)
	}
	id := a.json(s.t)["session_id"].(string)
	s.closesAfterwards(id)
	return id
}

// closesAfterwards ends a session with its test: one in a container outlives the server, as it should.
func (s *server) closesAfterwards(id string) {
	s.t.Cleanup(func() {
		req, err := http.NewRequest(http.MethodDelete, s.url+"/api/v1/sessions/"+id, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if s.token != "" {
			req.Header.Set("Authorization", "Bearer "+s.token)
		}
		if a := s.do(req); a.status != http.StatusOK {
			s.t.Errorf("close %s: %d %s", id, a.status, a.body)
		}
	})
}

// look is the session's state.
func (s *server) look(id string) map[string]any {
	s.t.Helper()
	return s.get("/api/v1/sessions/" + id).json(s.t)
}

func codeIn(session, code string) string {
	body, err := json.Marshal(map[string]string{"session_id": session, "code": code})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// cell runs code in a session and returns its result.
func (s *server) cell(session, code string) map[string]any {
	s.t.Helper()
	a := s.post("/api/v1/exec/sync", codeIn(session, code))
	if a.status != http.StatusOK {
		s.t.Fatalf("run %q: %d %s", code, a.status, a.body)
	}
	return a.json(s.t)
}

// value is what a result shows of the last expression as text.
func value(result map[string]any) string {
	list, _ := result["displays"].([]any)
	for _, entry := range list {
		if d := entry.(map[string]any); d["value"] == true && d["mime"] == "text/plain" {
			return fmt.Sprint(d["data"])
		}
	}
	return ""
}

// says is what a cell comes to: its value, or what it printed.
func says(result map[string]any) string {
	return value(result) + strings.TrimSuffix(fmt.Sprint(result["stdout"]), "\n")
}

// expect runs code and holds what it says and that the state was kept.
func (s *server) expect(session, code, want string) {
	s.t.Helper()
	if r := s.cell(session, code); says(r) != want || r["session_state"] != "kept" || r["status"] != "succeeded" {
		s.t.Errorf("%q says %q, want %q: %v", code, says(r), want, r)
	}
}

// languages are how each says the same.
var languages = map[string]struct{ set, add, append, count string }{
	"python":     {"x = 100", "x + 1", "with open('counter', 'a') as f: _ = f.write('+')", "len(open('counter').read())"},
	"javascript": {"var x = 100; undefined", "x + 1", "require('fs').appendFileSync('counter', '+')", "require('fs').readFileSync('counter').length"},
	"shell":      {"x=100", "echo $((x + 1))", "printf + >>counter", "wc -c <counter"},
}

func TestSessionsKeepTheirStateInEveryLanguage(t *testing.T) {
	onBothBackends(t, func(t *testing.T, s *server) {
		env := []string{"PYEXEC_SERVER=" + s.url}
		for language, say := range languages {
			if _, err := exec.LookPath("node"); language == "javascript" && err != nil {
				skipWithout(t, "node", false)
			}
			over := s.session(`{"language":"` + language + `","name":"over HTTP"}`)
			by := strings.TrimSpace(cli(t, env, nil, "session", "new", "--language", language, "--name", "by the CLI").stdout)
			s.closesAfterwards(by)
			s.expect(over, say.set, "")
			s.expect(over, say.add, "101")
			// Later cells must not run an earlier one again.
			for _, code := range []string{say.append, say.add, say.add} {
				if r := s.cell(over, code); r["status"] != "succeeded" {
					t.Errorf("%s: %v", language, r)
				}
			}
			s.expect(over, say.count, "1")

			for code, want := range map[string]string{say.set: "", say.append: ""} {
				if o := cli(t, env, nil, "session", "run", by, "-c", code); o.code != 0 || o.stdout != want {
					t.Errorf("%s: %q: %+v", language, code, o)
				}
			}
			if o := cli(t, env, nil, "session", "run", by, "-c", say.add); o != (outcome{stdout: "101\n"}) {
				t.Errorf("%s: %+v", language, o)
			}
			if o := cli(t, env, strings.NewReader(say.count+"\n"+say.add+"\n"), "session", "exec", "-i", by); o.code != 0 || o.stdout != "1\n101\n" {
				t.Errorf("%s: the console on a pipe: %+v", language, o)
			}
			if o := cli(t, env, nil, "session", "exec", by, "--", "cat", "counter"); o != (outcome{stdout: "+"}) {
				t.Errorf("%s: a command beside it: %+v", language, o)
			}
		}
		list := cli(t, env, nil, "session", "ls").stdout
		for language := range languages {
			if !strings.Contains(list, language) {
				t.Errorf("%s is not in\n%s", language, list)
			}
		}
	})
}

// visible is what `ls` shows of the work folder.
const visible = "__import__('glob').glob('*')"

// startCell starts code in a session and returns the id of its execution, when it has printed "up".
func (s *server) startCell(session, code string) string {
	s.t.Helper()
	id := s.async(codeIn(session, code))
	s.up(id)
	return id
}

func TestSessionsAreInterruptedRestartedAndWiped(t *testing.T) {
	onBothBackends(t, func(t *testing.T, s *server) {
		id := s.session(`{}`)
		at := "/api/v1/sessions/" + id
		s.cell(id, "x = 1; open('kept', 'w').close()")

		running := s.startCell(id, "print('up', flush=True)\nimport time\ntime.sleep(600)")
		if a := s.post(at+"/interrupt", ""); a.status != http.StatusOK {
			t.Errorf("interrupt: %d %s", a.status, a.body)
		}
		if r := s.wait(running, "killed"); r["session_state"] != "kept" || !strings.Contains(fmt.Sprint(r["stderr"]), "KeyboardInterrupt") {
			t.Errorf("%v", r)
		}
		s.expect(id, "x", "1")

		stubborn := s.startCell(id, "import signal\nsignal.signal(2, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: pass")
		s.post(at+"/interrupt", "")
		if r := s.wait(stubborn, "killed"); r["session_state"] != "restarted" {
			t.Errorf("%v", r)
		}
		s.expect(id, "import os; 'x' in globals(), os.path.exists('kept')", "(False, True)")

		s.cell(id, "y = 1")
		if a := s.post(at+"/restart", `{"wipe":false}`).json(t); a["status"] != "active" {
			t.Errorf("%v", a)
		}
		s.expect(id, "'y' in globals(), "+visible, "(False, ['kept'])")
		s.post(at+"/restart", `{"wipe":true}`)
		s.expect(id, visible, "[]")
	})
}

func TestAnInterpreterThatDiesLosesItsSessionUntilItIsRestarted(t *testing.T) {
	needtest.Long(t, "the law")
	onBothBackends(t, func(t *testing.T, s *server) {
		for code, want := range map[string]struct{ result, reason string }{
			"import os; os._exit(7)":               {"failed 7 <nil>", "exit code 7"},
			"import os; os.kill(os.getpid(), 11)":  {"failed <nil> SIGSEGV", "SIGSEGV"},
			"import ctypes; ctypes.string_at(8)":   {"failed <nil> SIGSEGV", "SIGSEGV"},
			"import os; os.kill(os.getpid(), 9)":   {"failed <nil> SIGKILL", "SIGKILL"},
			"import os; os.abort()":                {"failed <nil> SIGABRT", "SIGABRT"},
			"import os; os.kill(os.getpid(), 999)": {"", ""}, // an error like any other
		} {
			id := s.session(`{}`)
			s.cell(id, "open('kept', 'w').close()")
			r := s.cell(id, code)
			if want.reason == "" {
				if r["exit_code"] != 1.0 || r["session_state"] != "kept" {
					t.Errorf("%s: %v", code, r)
				}
				continue
			}
			if got := fmt.Sprint(r["status"], " ", r["exit_code"], " ", r["signal"]); got != want.result || r["session_state"] != "lost" {
				t.Errorf("%s: %q, want %q: %v", code, got, want.result, r)
			}
			if v := s.look(id); v["status"] != "lost" || !strings.Contains(fmt.Sprint(v["reason"]), want.reason) {
				t.Errorf("%s: %v", code, v)
			}
			if a := s.post("/api/v1/exec/sync", codeIn(id, "1")); a.status != http.StatusConflict {
				t.Errorf("in a lost session: %d %s", a.status, a.body)
			}
			if a := s.post("/api/v1/sessions/"+id+"/restart", ""); a.status != http.StatusOK {
				t.Fatalf("restart: %d %s", a.status, a.body)
			}
			s.expect(id, visible, "['kept']")
		}
	})
}

func TestFilesOfASession(t *testing.T) {
	onBothBackends(t, func(t *testing.T, s *server) {
		id := s.session(`{}`)
		at := "/api/v1/sessions/" + id + "/files"
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		if a := s.do(s.request(http.MethodPut, at+"/data/rows.csv", bytes.NewReader(content))); a.status != http.StatusOK && a.status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.status, a.body)
		}
		s.expect(id, "import os; os.path.getsize('data/rows.csv')", fmt.Sprint(len(content)))
		s.cell(id, "open('out.txt', 'w').write('made here')")
		if a := s.get(at + "/data/rows.csv"); !bytes.Equal(a.body, content) || a.header.Get("Content-Length") != fmt.Sprint(len(content)) {
			t.Errorf("GET: %d, %d bytes, %v", a.status, len(a.body), a.header)
		}
		if a := s.get(at + "/out.txt"); string(a.body) != "made here" {
			t.Errorf("GET: %d %s", a.status, a.body)
		}
		paths := ""
		for _, entry := range s.get(at + "?recursive=true").json(t)["files"].([]any) {
			paths += fmt.Sprint(entry.(map[string]any)["path"], " ")
		}
		if paths != "data data/rows.csv out.txt " {
			t.Errorf("the list is %q", paths)
		}
		s.cell(id, "import os; os.symlink('/etc/passwd', 'link')")
		for _, path := range []string{"/link", "/..%2f..%2fetc%2fpasswd", "/%2fetc%2fpasswd"} {
			if a := s.get(at + path); a.status < 400 || bytes.Contains(a.body, []byte("root:")) {
				t.Errorf("%s: %d %.100s", path, a.status, a.body)
			}
		}
		if a := s.do(s.request(http.MethodDelete, at+"/out.txt", nil)); a.status >= 300 {
			t.Errorf("DELETE: %d %s", a.status, a.body)
		}
		if a := s.get(at + "/out.txt"); a.status != http.StatusNotFound {
			t.Errorf("after its removal: %d", a.status)
		}

		env := []string{"PYEXEC_SERVER=" + s.url}
		dir := t.TempDir()
		local := filepath.Join(dir, "a.txt")
		if err := os.WriteFile(local, []byte("by the CLI"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := cli(t, env, nil, "session", "cp", local, id+":data/"); o.code != 0 {
			t.Errorf("cp: %+v", o)
		}
		s.expect(id, "open('data/a.txt').read()", "'by the CLI'")
		if o := cli(t, env, nil, "session", "cp", id+":data/a.txt", "-"); o.code != 0 || o.stdout != "by the CLI" {
			t.Errorf("cp: %+v", o)
		}
		modesAndEmptyFolders(t, s)
	})
}

func TestAClosedSessionIsGone(t *testing.T) {
	needtest.Long(t, "the law, and the tests of core/engine")
	onBothBackends(t, func(t *testing.T, s *server) {
		id := s.session(`{}`)
		running := s.startCell(id, "import subprocess\np = subprocess.Popen(['sleep', '600'], env={'MARK': '"+id+"'})\nprint('up', flush=True)\np.wait()")
		if a := s.do(s.request(http.MethodDelete, "/api/v1/sessions/"+id, nil)); a.json(t)["status"] != "closed" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		s.wait(running, "killed")
		if v := s.look(id); v["status"] != "closed" || v["reason"] == nil {
			t.Errorf("%v", v)
		}
		if a := s.post("/api/v1/exec/sync", codeIn(id, "1")); a.status != http.StatusConflict {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(s.request(http.MethodDelete, "/api/v1/sessions/"+id, nil)); a.status != http.StatusOK {
			t.Errorf("once more: %d %s", a.status, a.body)
		}
		awaittest.Until(t, "no program is left", func() bool { return len(processes(t, "MARK="+id)) == 0 })
	})
}

func TestASessionThatNobodyUsesEnds(t *testing.T) {
	needtest.Long(t, "the tests of core/engine")
	onBothBackends(t, func(t *testing.T, s *server) {
		idle := s.session(`{"idle_timeout_seconds":1}`)
		short := s.session(`{"max_life_seconds":2}`)
		other := s.session(`{}`)
		for id, reason := range map[string]string{idle: "used", short: "max_life"} {
			awaittest.Until(t, id+" is closed", func() bool { return s.look(id)["status"] == "closed" })
			if v := s.look(id); v["reason"] == nil {
				t.Errorf("no reason (%s): %v", reason, v)
			}
		}
		s.expect(other, "1 + 1", "2")
	})
}
