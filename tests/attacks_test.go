package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// TestAttacks attacks a running server in each of three places: through its API as one of two owners, with programs, with what a package
// source answers, and as another user of the host.
func TestAttacks(t *testing.T) {
	needtest.Long(t, "BE-59 and the rules of abuse from BE-200 on, and the tests of paths and fetches of backend-uv and frontend-mcp")
	skipWithout(t, "root", os.Geteuid() == 0)
	for _, place := range []place{{name: "of root"}, {name: "of an ordinary user", uid: 65534}, {name: "in a container", container: true}} {
		t.Run(place.name, func(t *testing.T) {
			v := startVictim(t, place)
			for _, attack := range []struct {
				name string
				run  func(*testing.T, *victim)
			}{
				{"descriptors in flight", attackInFlight}, {"renamed folders", attackRenames}, {"a folder that is exchanged in the queue", attackQueued},
				{"fetches", attackFetches}, {"another owner's results", attackResults}, {"another owner's slots", attackSlots}, {"another owner's sessions", attackSessions},
				{"another owner's calls", attackCalls}, {"what a program sees", attackSights},
			} {
				t.Run(attack.name, func(t *testing.T) {
					here := *v
					here.server = v.by(t, "ann")
					attack.run(t, &here)
				})
			}
			if a := v.by(t, "bob").exec(map[string]any{"code": "print('serves')"}); a["stdout"] != "serves\n" {
				t.Errorf("afterwards: %v", a)
			}
		})
	}
}

// place is where a server runs.
type place struct {
	name      string
	uid       uint32 // of the server; 0: root
	container bool   // of Docker, with Docker's defaults and the network of the host
}

// victim is the server that is attacked. Its methods act as ann.
type victim struct {
	*server
	place
	index *hostileIndex
	// open is a folder of mcp.directories that a stranger owns. open/a has scripts, and secret has files of the same names that the server
	// alone may read.
	open, secret string
}

// stranger is a user of the host, who is neither the server's nor one that runs programs.
const stranger = 65533

// slots are the programs that run at once.
const slots = 4

const ourScript, secretScript = "print('ours')\n", "print('SECRET')\n"

func startVictim(t *testing.T, p place) *victim {
	t.Helper()
	uv := findUV(t)
	base, err := os.MkdirTemp(filepath.Dir(cacheDir), "victim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	at := func(names ...string) string { return filepath.Join(append([]string{base}, names...)...) }
	v := &victim{place: p, open: at("open"), secret: at("closed", "secret"), index: newHostileIndex(t)}
	owner := int(p.uid)
	err = errors.Join(os.Chmod(base, 0o755), os.Mkdir(at("open"), 0o755), os.Mkdir(at("closed"), 0o700), os.Mkdir(at("home"), 0o755), os.Mkdir(at("data"), 0o755),
		os.Chown(at("closed"), owner, owner), os.Chown(at("home"), owner, owner), os.Chown(at("data"), owner, owner))
	for dir, text := range map[string]string{filepath.Join(v.open, "a"): ourScript, v.secret: secretScript} {
		// A program could read the secret, if it were shown to it. Only the folder above is closed.
		err = errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.py"), []byte(text), 0o644))
	}
	for _, dir := range []string{v.open, filepath.Join(v.open, "a")} {
		err = errors.Join(err, os.Chown(dir, stranger, stranger))
	}
	if err != nil {
		t.Fatal(err)
	}
	set := []string{
		"PATH=" + filepath.Dir(uv) + ":" + os.Getenv("PATH"), "HOME=" + at("home"), "PYEXEC_HTTP_BIND=127.0.0.1:0", "PYEXEC_DATA_DIR=" + at("data"),
		"PYEXEC_BACKENDS_UV_CACHE_DIR=" + at("home", "cache"), "PYEXEC_BACKENDS_UV_INDEX_URL=" + v.index.url + "/simple", "PYEXEC_BACKENDS_UV_ALLOW_BUILDS=true",
		"PYEXEC_MCP_DIRECTORIES=" + v.open, "PYEXEC_ENGINE_MAX_CONCURRENT=" + strconv.Itoa(slots), "PYEXEC_ENGINE_DRAIN_TIMEOUT_SECONDS=0",
		"PYEXEC_RETENTION_MAX_BYTES=" + strconv.Itoa(64<<20), "PYEXEC_SESSIONS_MAX=8", "PYEXEC_SESSIONS_MAX_WAITING=200", "PYEXEC_MCP_HTTP_MAX_SESSIONS=8", "UV_INDEX_URL=", "PIP_FIND_LINKS=", "UV_FIND_LINKS=",
		"PYEXEC_HTTP_TOKENS=" + fmt.Sprintf(`[{"owner":"ann","sha256":%q},{"owner":"bob","sha256":%q}]`, sha("ann-token"), sha("bob-token")),
	}
	v.server = &server{t: t, dir: base, token: "ann-token", environ: environ(set...)}
	host, image := "", ""
	if p.container {
		host, image = dockertest.Host(t), dockertest.Python(t)
	}
	v.wrap = func(cmd *exec.Cmd) {
		args := cmd.Args
		if p.uid != 0 {
			id := strconv.Itoa(owner)
			args = append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--"}, args...)
		}
		protects := exec.Command("choom", "-n", "-500", "--", "true").Run() == nil // some machines of tests may not
		if protects && !p.container {                                              // as a service manager does
			args = append([]string{"choom", "-n", "-500", "--"}, args...)
		}
		if p.container {
			docker := []string{"docker", "-H", host, "run", "--rm", "--network", "host", "--name", filepath.Base(base),
				"-v", binary + ":" + binary + ":ro", "-v", base + ":" + base, "-v", filepath.Dir(uv) + ":" + filepath.Dir(uv) + ":ro"}
			if protects {
				docker = append(docker, "--oom-score-adj", "-500")
			}
			for _, kv := range set {
				docker = append(docker, "-e", kv)
			}
			args = slices.Concat(docker, []string{image}, args)
		}
		cmd.Path, cmd.Args, cmd.Dir = "/usr/bin/env", append([]string{"env"}, args...), base
	}
	v.start()
	t.Cleanup(func() {
		v.stop()
		if t.Failed() {
			t.Logf("the server:\n%s", tail([]byte(v.log.String()), 800000))
		}
		if p.container {
			_ = exec.Command("docker", "-H", host, "rm", "-f", filepath.Base(base)).Run() // it has ended with its client
		}
	})
	return v
}

// findUV returns a uv, which this machine has or which the product fetches.
func findUV(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("uv"); err == nil {
		return path
	}
	o := cli(t, nil, strings.NewReader("# /// script\n# dependencies = ['six']\n# ///\nimport six"), "run")
	found, _ := filepath.Glob(filepath.Join(cacheDir, "tools", "uv-*", "bin", "uv"))
	if len(found) == 0 {
		t.Logf("%+v", o)
		skipWithout(t, "index", false)
	}
	return found[0]
}

// by returns the server as its owner calls it in a test.
func (v *victim) by(t *testing.T, owner string) *server {
	s := *v.server
	s.t, s.token = t, owner+"-token"
	return &s
}

// exec runs a request to its end and returns the Result, or the error.
func (s *server) exec(request map[string]any) map[string]any {
	s.t.Helper()
	return s.post("/api/v1/exec/sync", encoded(request)).json(s.t)
}

// attackInFlight keeps in a session what the kernel counts for all processes of a user: descriptors in flight, pages of pipes, instances of
// inotify, timers.
func attackInFlight(t *testing.T, v *victim) {
	a := v.post("/api/v1/sessions", "{}")
	id, _ := a.json(t)["session_id"].(string)
	bomb := v.exec(map[string]any{"session_id": id, "code": `
import array, ctypes, fcntl, os, resource, socket
libc, kept_pipes, more = ctypes.CDLL(None), [], True
while more and len(kept_pipes) < 200:
    kept_pipes.append(os.pipe())
    try:
        fcntl.fcntl(kept_pipes[-1][1], 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        more = False
for _ in range(2000):
    if libc.inotify_init() < 0: break
timer = ctypes.c_void_p()
for _ in range(200000):
    if libc.timer_create(1, None, ctypes.byref(timer)) != 0: break
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
many, kept, sent = array.array("i", [os.open("/dev/null", 0)] * 250), [socket.socketpair()], 0
while sent < 2000000:
    try:
        sent += 250 * kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)], socket.MSG_DONTWAIT)
    except BlockingIOError:
        kept.append(socket.socketpair())
    except OSError as e:
        break
print("up", sent)`})
	said, _ := bomb["stdout"].(string)
	if !strings.HasPrefix(said, "up ") || said == "up 0\n" {
		t.Fatalf("%s %v", a.body, bomb)
	}
	t.Logf("in flight: %s", said)
	bob := v.by(t, "bob")
	for range 4 { // each may get another sandbox
		r := bob.multipart("/api/v1/exec/sync", part{name: "metadata", contentType: "application/json", body: []byte(`{"code": "print(len(open('given').read()))"}`)},
			part{name: "tar", filename: "in.tar", contentType: "application/x-tar", body: tarOf(t, file{"given", strings.Repeat("x", 1<<20)})}).json(t)
		if r["stdout"] != "1048576\n" {
			t.Errorf("another owner's program: %v", r)
		}
	}
	other, _ := bob.post("/api/v1/sessions", "{}").json(t)["session_id"].(string)
	bob.expect(other, "6 * 7", "42")
	v.expect(id, "len(kept) > 0", "True") // the attack goes on all the while
	for s, id := range map[*server]string{bob: other, v.server: id} {
		if a := s.do(s.request(http.MethodDelete, "/api/v1/sessions/"+id, nil)); a.status != http.StatusOK {
			t.Errorf("close: %d %s", a.status, a.body)
		}
	}
}

// exchange gives two names each other's file, at once.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// restore exchanges a link and a name unless the link is one.
func restore(link, name string) error {
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink != 0 {
		return err
	}
	return exchange(link, name)
}

// attackRenames calls while a user of the host exchanges the folder and the script that the calls name for links to secret ones.
func attackRenames(t *testing.T, v *victim) {
	folder, script := filepath.Join(v.open, "link"), filepath.Join(v.open, "link.py")
	if err := errors.Join(os.Symlink(v.secret, folder), os.Symlink(filepath.Join(v.secret, "main.py"), script)); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	ended := make(chan error)
	go func() {
		var err error
		for n := 0; err == nil && !stop.Load(); n++ { // each name exists all the while
			if err = exchange(folder, filepath.Join(v.open, "a")); err == nil && n%4 == 1 { // the folder is back
				err = exchange(script, filepath.Join(v.open, "a", "main.py"))
			}
		}
		ended <- err
	}()
	defer func() {
		stop.Store(true)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		// The next attack finds the folder as it was.
		if err := errors.Join(restore(folder, filepath.Join(v.open, "a")), restore(script, filepath.Join(v.open, "a", "main.py"))); err != nil {
			t.Error(err)
		}
	}()
	ann, ours := newMCPCaller(t, v.url+"/mcp", v.token), 0
	for n := 0; n < 2000 && (n < 200 || ours < 20); n++ {
		_, text, _ := ann.call("run_script_in_dir", map[string]any{"directory": filepath.Join(v.open, "a"), "script_path": "main.py"})
		r := v.exec(map[string]any{"host_directory": filepath.Join(v.open, "a"), "code": "exec(open('main.py').read())"})
		for _, said := range []string{text, fmt.Sprint(r)} {
			if strings.Contains(said, "SECRET") {
				t.Fatalf("call %d: %s", n, said)
			}
			if strings.Contains(said, "ours") {
				ours++
			}
		}
	}
	if ours < 20 {
		t.Errorf("only %d calls found the folder as it is", ours)
	}
	t.Logf("%d calls found the folder as it is", ours)
}

// attackQueued exchanges a folder while its request, which was allowed, waits for a package.
func attackQueued(t *testing.T, v *victim) {
	request := encoded(map[string]any{"host_directory": filepath.Join(v.open, "a"), "requirements_txt": "late", "code": "print(open('main.py').read())"})
	if v.uid == 0 { // programs have other users than the server, so none runs in a folder of the host
		if a := v.post("/api/v1/exec/async", request); a.status != http.StatusNotImplemented {
			t.Errorf("%d %s", a.status, a.body)
		}
		return
	}
	id := v.async(request)
	<-v.index.asked
	a := filepath.Join(v.open, "a")
	err := errors.Join(os.Rename(a, a+"-before"), os.Symlink(v.secret, a))
	close(v.index.answer)
	r := v.wait(id, "succeeded", "failed")
	if said := string(v.get("/api/v1/executions/" + id).body); err != nil || strings.Contains(said, "SECRET") || r["status"] != "failed" || !strings.Contains(said, "host_directory") {
		t.Errorf("%v, %s", err, said)
	}
	if err := errors.Join(os.Remove(a), os.Rename(a+"-before", a)); err != nil {
		t.Error(err)
	}
}

// attackResults makes files that take no place where they are, and would take it all where results are kept.
func attackResults(t *testing.T, v *victim) {
	bob := v.by(t, "bob")
	kept, _ := bob.exec(map[string]any{"code": "open('mine', 'w').write('bob')", "outputs": []string{"mine"}})["execution_id"].(string)
	for n, size := range []int64{48 << 20, 48 << 20, 48 << 20, 256 << 20, 60 << 30} {
		code := fmt.Sprintf("open('holes', 'wb').truncate(%d)", size)
		if r := v.exec(map[string]any{"code": code, "outputs": []string{"holes"}}); n < 3 && r["status"] != "succeeded" || n == 4 && r["status"] != "failed" {
			t.Errorf("%d bytes: %v", size, r)
		}
	}
	if a := bob.get("/api/v1/executions/" + kept + "/artifacts/mine"); a.status != http.StatusOK || !bytes.Equal(a.body, []byte("bob")) {
		t.Errorf("another owner's result: %d %s", a.status, a.body)
	}
}

// attackSessions opens sessions until there are no more.
func attackSessions(t *testing.T, v *victim) {
	bob, call := v.by(t, "bob"), newMCPCaller(t, v.url+"/mcp", "bob-token")
	var open []string
	a := v.post("/api/v1/sessions", "{}")
	for ; a.status == http.StatusCreated && len(open) < 20; a = v.post("/api/v1/sessions", "{}") {
		open = append(open, a.json(t)["session_id"].(string))
	}
	if a.status != http.StatusTooManyRequests {
		t.Errorf("beyond her share: %d %s", a.status, a.body)
	}
	for range 20 {
		newMCPCaller(t, v.url+"/mcp", "ann-token")
	}
	if fields, text, wrong := call.call("run_code", map[string]any{"context_id": bob.session("{}"), "code": "6 * 7"}); wrong || !strings.Contains(fmt.Sprint(fields), "42") {
		t.Errorf("another owner's session: %s", text)
	}
	for _, id := range open {
		v.do(v.request(http.MethodDelete, "/api/v1/sessions/"+id, nil))
	}
}

// attackSlots fills the server with programs that do not end.
func attackSlots(t *testing.T, v *victim) {
	bob := v.by(t, "bob")
	status := func(id string) any { return v.get("/api/v1/executions/" + id).json(t)["status"] }
	var ids []string
	for range 8 {
		ids = append(ids, v.async(`{"code": "import signal; signal.pause()"}`))
	}
	v.wait(ids[slots-2], "running")
	for range 3 {
		other := bob.async(`{"code": "print(1)"}`)
		awaittest.Until(t, "another owner's program has run, or has no slot", func() bool {
			if held := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return status(id) != "running" }); len(held) >= slots {
				t.Errorf("one owner's programs have all slots: %q", held)
				return true // and are ended below
			}
			return bob.get("/api/v1/executions/" + other).json(t)["status"] == "succeeded"
		})
	}
	for _, id := range ids {
		v.do(v.request(http.MethodDelete, "/api/v1/executions/"+id, nil))
		v.wait(id, "killed")
	}
}

// attackCalls fills MCP with calls that do not end.
func attackCalls(t *testing.T, v *victim) {
	ann, bob := newMCPCaller(t, v.url+"/mcp", "ann-token"), newMCPCaller(t, v.url+"/mcp", "bob-token")
	ctx, cancel := contextWithCancel(t)
	refused, done := make(chan string, 100), make(chan struct{}, 100)
	for range cap(done) {
		go func() {
			defer func() { done <- struct{}{} }()
			body := `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "execute", "arguments": {"command": "exec sleep 1000000"}}}`
			r := v.request(http.MethodPost, "/mcp", strings.NewReader(body), "Content-Type", "application/json", "Accept", "application/json, text/event-stream",
				"Mcp-Session-Id", ann.session, "Mcp-Protocol-Version", "2025-11-25").WithContext(ctx)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				said, _ := io.ReadAll(resp.Body) // what there is of it
				resp.Body.Close()
				refused <- string(said)
			}
		}()
	}
	if said := awaittest.Recv(t, "a call that is refused", refused); !strings.Contains(said, "already running") {
		t.Errorf("beyond her share: %s", said)
	}
	for range 3 {
		if fields, text, wrong := bob.call("execute", map[string]any{"command": "echo served"}); wrong || fields["stdout"] != "served\n" {
			t.Errorf("another owner's call: %s", text)
		}
	}
	cancel(nil)
	for range cap(done) {
		awaittest.Recv(t, "the end of a call", done)
	}
	if a := v.do(v.request(http.MethodDelete, "/mcp", nil, "Mcp-Session-Id", ann.session)); a.status >= 300 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
