package tests

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// liveConfig is a configuration file that a server watches. It is reached by two links, as the files of a ConfigMap are.
type liveConfig struct {
	t   *testing.T
	dir string
	n   int
}

func newLiveConfig(t *testing.T, text string) *liveConfig {
	t.Helper()
	c := &liveConfig{t: t, dir: t.TempDir()}
	c.swap(text)
	if err := os.Symlink("..data/c.yaml", c.path()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *liveConfig) path() string { return filepath.Join(c.dir, "c.yaml") }

// swap puts a new folder in the place of ..data.
func (c *liveConfig) swap(text string) {
	c.t.Helper()
	c.n++
	folder, link := fmt.Sprintf("..%d", c.n), filepath.Join(c.dir, "..tmp")
	for _, err := range []error{
		os.Mkdir(filepath.Join(c.dir, folder), 0o700),
		os.WriteFile(filepath.Join(c.dir, folder, "c.yaml"), []byte(text), 0o600),
		os.Symlink(folder, link),
		os.Rename(link, filepath.Join(c.dir, "..data")),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// replace puts a new file in the place of the links, as an editor does.
func (c *liveConfig) replace(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path()+".new", []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.path()+".new", c.path()); err != nil {
		c.t.Fatal(err)
	}
}

// uvSection is an entry of type uv with its own users and folders below a folder that users may pass.
func uvSection(name, users string) string {
	return fmt.Sprintf("  %s: {type: uv, run_as: %s, cache_dir: %s, work_dir: %s}\n", name, users, cacheDir, filepath.Join(filepath.Dir(cacheDir), "live-"+name))
}

// backends returns the names of the backends and all that is said of them.
func (s *server) backends() (names []string, text string) {
	s.t.Helper()
	a := s.get("/api/v1/backends")
	for _, b := range a.json(s.t)["backends"].([]any) {
		names = append(names, b.(map[string]any)["name"].(string))
	}
	return names, string(a.body)
}

// awaitBackends waits until exactly these backends are there.
func (s *server) awaitBackends(want ...string) {
	s.t.Helper()
	awaittest.Until(s.t, fmt.Sprintf("the backends are %v", want), func() bool {
		names, _ := s.backends()
		return fmt.Sprint(names) == fmt.Sprint(want)
	})
}

// load runs small programs, two at a time, until end is called, which returns how many it ran. Each must succeed.
func (s *server) load() (end func() int) {
	var stopped atomic.Bool
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stopped.Load() && !s.t.Failed() {
				a := s.post("/api/v1/exec/sync", `{"code":"print(6*7)"}`)
				if x := a.json(s.t); a.status != http.StatusOK || x["status"] != "succeeded" || x["stdout"] != "42\n" {
					s.t.Errorf("a request failed: %d %s", a.status, a.body)
				}
				ran.Add(1)
			}
		})
	}
	return func() int {
		stopped.Store(true)
		wg.Wait()
		return int(ran.Load())
	}
}

// lasting opens a session and sets a variable in it.
func (s *server) lasting() string {
	s.t.Helper()
	id := s.session(`{}`)
	s.inSession(id, "x = 1", "")
	return id
}

func (s *server) inSession(id, code, stdout string) {
	s.t.Helper()
	a := s.post("/api/v1/exec/sync", fmt.Sprintf(`{"session_id":%q,"code":%q}`, id, code))
	if x := a.json(s.t); a.status != http.StatusOK || x["status"] != "succeeded" || x["stdout"] != stdout {
		s.t.Errorf("in the session: %d %s", a.status, a.body)
	}
}

// refuses reports whether the server refuses a client with that uid.
func (s *server) refuses(uid int) bool {
	s.t.Helper()
	var c net.Conn
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, unless it is the first one
		if err = syscall.Setfsuid(uid); err == nil {
			c, err = net.Dial("tcp", strings.TrimPrefix(s.url, "http://")) // a socket belongs to the user that made it
			err = errors.Join(err, syscall.Setfsuid(os.Geteuid()))         // else the backend finds a process of that user
		}
	}()
	<-done
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	var answer *http.Response
	if err = s.request(http.MethodGet, "/healthz", nil).Write(c); err == nil {
		answer, err = http.ReadResponse(bufio.NewReader(c), nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusForbidden
}

func TestABackendIsSwitchedUnderLoad(t *testing.T) {
	one, two := uvSection("one", "200500-200549"), uvSection("two", "200550-200599")
	c := newLiveConfig(t, "backend: one\nmcp: {toolsets: []}\nbackends:\n"+one)
	s := startServer(t, nil, "--config", c.path())
	end := s.load()
	kept := s.lasting()
	running := s.async(`{"code":"import sys\nprint('begun', flush=True)\nprint(sys.stdin.read())\nimport time\ntime.sleep(3)\nprint('done')"}`)
	s.wait(running, "running")

	c.swap("backend: two\nbackends: {two: {type: uv, no_such_key: 1}}\n")
	awaittest.Until(t, "the broken file is reported", func() bool {
		return strings.Contains(string(s.get("/readyz").body), "not in effect (backends.two.no_such_key)")
	})
	if names, text := s.backends(); fmt.Sprint(names) != "[one]" || !strings.Contains(text, "no_such_key") {
		t.Errorf("backends: %s", text)
	}
	if out := cli(t, []string{"PYEXEC_SERVER=" + s.url}, nil, "backends"); !strings.Contains(out.stdout, "the changed configuration is not in effect") {
		t.Errorf("the CLI shows:\n%s%s", out.stdout, out.stderr)
	}

	c.swap("backend: two\nmcp: {toolsets: []}\nbackends:\n" + two)
	s.awaitBackends("two", "one") // one drains
	if got := string(s.get("/readyz").body); strings.TrimSpace(got) != `{"ready":true}` {
		t.Errorf("readyz: %s", got)
	}
	if !s.refuses(200500) || !s.refuses(200550) {
		t.Error("programs of one of the backends can call the server")
	}
	if x := s.wait(s.async(`{"code":"1"}`), "succeeded"); x["backend"] != "two" {
		t.Errorf("a new execution ran on %v", x["backend"])
	}
	if x := s.wait(running, "succeeded"); x["backend"] != "one" || !strings.HasSuffix(x["stdout"].(string), "done\n") {
		t.Errorf("what ran: %v", x)
	}
	s.inSession(kept, "print(x)", "1\n")
	if a := s.do(s.request(http.MethodDelete, "/api/v1/sessions/"+kept, nil)); a.status >= 300 {
		t.Errorf("close: %d %s", a.status, a.body)
	}
	s.awaitBackends("two")

	// The end of the drain ends a session that stays open.
	lost := s.lasting()
	c.replace("backend: one\nmcp: {toolsets: []}\nengine: {drain_timeout_seconds: 1}\nbackends:\n" + one)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.awaitBackends("one")
	if v := s.get("/api/v1/sessions/" + lost).json(t); v["status"] != "lost" || !strings.Contains(fmt.Sprint(v["reason"]), "had to drain") {
		t.Errorf("the session is %v", v)
	}
	awaittest.Until(t, "the uids of the former backend are refused no more", func() bool { return !s.refuses(200550) })
	if !s.refuses(200500) {
		t.Error("programs of the present backend can call the server")
	}
	if n := end(); n == 0 {
		t.Error("there was no load")
	}
}

func TestTheSwitchToDockerAndBack(t *testing.T) {
	needtest.Long(t, "TestABackendIsSwitchedUnderLoad")
	image := dockertest.Python(t)
	docker := fmt.Sprintf("  docker: {host: %q, default_image: %q}\n", dockertest.Host(t), image)
	uv := uvSection("one", "200500-200549")
	c := newLiveConfig(t, "backend: one\nmcp: {toolsets: []}\nbackends:\n"+uv)
	s := startServer(t, nil, "--config", c.path())
	end := s.load()
	kept := s.lasting()
	c.swap("backend: docker\nmcp: {toolsets: []}\nbackends:\n" + docker)
	s.awaitBackends("docker", "one")
	s.inSession(kept, "print(x)", "1\n")
	inDocker := s.lasting()
	c.swap("backend: one\nmcp: {toolsets: []}\nbackends:\n" + uv)
	awaittest.Until(t, "one is back", func() bool { names, _ := s.backends(); return names[0] == "one" })
	s.inSession(inDocker, "print(x)", "1\n")
	s.inSession(kept, "print(x)", "1\n")
	for _, id := range []string{kept, inDocker} {
		s.do(s.request(http.MethodDelete, "/api/v1/sessions/"+id, nil))
	}
	s.awaitBackends("one")
	if n := end(); n == 0 {
		t.Error("there was no load")
	}
	// The plugin stops once the backend is drained.
	awaittest.Until(t, "nothing is left in the daemon", func() bool { return len(dockertest.Objects(t, s.label())) == 0 })
}
