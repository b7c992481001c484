package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	// atOnce bounds the sessions that are open at the same time.
	atOnce = 20
	// idleSeconds is when a session that is left alone ends.
	idleSeconds = 1
	// hammers are the clients of one session, each with hammered cells.
	hammers, hammered = 16, 50
)

// usage is what a server has: what must be again as it was when all sessions are gone.
type usage struct {
	core, plugin int64 // resident bytes
	processes    int   // with the server's folder as their own
	files        int   // in the server's work folder
	descriptors  int   // of core and plugin
}

func (u usage) String() string {
	return fmt.Sprintf("RSS core %d MiB, plugin %d MiB; %d processes, %d files, %d descriptors", u.core>>20, u.plugin>>20, u.processes, u.files, u.descriptors)
}

// sessionSoak opens, uses and ends sessions in every way that there is.
type sessionSoak struct {
	name      string
	server    *serve.Server
	languages []string

	mu     sync.Mutex
	ended  map[string]int // how sessions ended
	open   atomic.Int64
	peak   atomic.Int64
	failed error
}

// runSessions soaks sessions of a backend's, and one that many hammer.
func runSessions(binary, name string, count int, started func(*serve.Server) error, env ...string) error {
	if count == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "pyexec-soak-sessions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	k := &sessionSoak{name: name, ended: map[string]int{}, languages: []string{"python", "shell", "javascript"}, server: &serve.Server{
		Binary: binary, Dir: dir, Env: append([]string{"PYEXEC_SESSIONS_MAX=" + strconv.Itoa(atOnce)}, env...),
	}}
	if err := k.server.Start(); err != nil {
		return err
	}
	defer k.server.Stop()
	if started != nil {
		if err := started(k.server); err != nil {
			return err
		}
	}
	if err := k.wave(min(count, 2*atOnce)); err != nil { // what is made once is there afterwards
		return err
	}
	before, err := k.rest(usage{})
	if err != nil {
		return err
	}
	clear(k.ended)
	begin := time.Now()
	if err := k.wave(count); err != nil {
		return err
	}
	fmt.Printf("%s: %d sessions in %s, at most %d at once, ended %v\n", name, count, time.Since(begin).Round(time.Millisecond), k.peak.Load(), k.ended)
	if err := k.hammer(); err != nil {
		return err
	}
	after, err := k.rest(before)
	fmt.Printf("%s: before %v\n%s: after  %v\n", name, before, name, after)
	return err
}

// wave makes count sessions, atOnce at a time.
func (k *sessionSoak) wave(count int) error {
	work := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range work {
				if err := k.life(i); err != nil {
					k.mu.Lock()
					k.failed = errors.Join(k.failed, fmt.Errorf("%s: session %d: %w", k.name, i, err))
					k.mu.Unlock()
				}
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	wg.Wait()
	return k.failed
}

// life is one session's: it is opened, used, and ended in a way that chance chooses.
func (k *sessionSoak) life(i int) error {
	language := k.languages[rand.IntN(len(k.languages))] //nolint:gosec // any will do
	var s struct {
		ID string `json:"session_id"`
	}
	body := fmt.Sprintf(`{"language":%q,"name":"soak %d","idle_timeout_seconds":600}`, language, i)
	way := []string{"closed", "closed while it runs", "interpreter killed", "restarted", "idle"}[rand.IntN(5)] //nolint:gosec // likewise
	if way == "idle" {
		body = fmt.Sprintf(`{"language":%q,"name":"soak %d","idle_timeout_seconds":%d}`, language, i, idleSeconds)
	}
	if err := k.server.JSON(http.MethodPost, "/api/v1/sessions", body, &s); err != nil {
		return err
	}
	if now := k.open.Add(1); now > k.peak.Load() {
		k.peak.Store(now) // nearly: two may write at once
	}
	defer k.open.Add(-1)
	if err := k.use(s.ID, language, i); err != nil {
		return fmt.Errorf("%s, %s: %w", language, way, err)
	}
	if err := k.end(s.ID, language, way, i); err != nil {
		return fmt.Errorf("%s, %s: %w", language, way, err)
	}
	k.mu.Lock()
	k.ended[way]++
	k.mu.Unlock()
	return nil
}

// speech is how a language says what the soak needs.
var speech = map[string]struct{ set, get, die, forever string }{
	"python":     {"x = %d; f = open('f', 'w').write('x' * 100000)", "print(x)", "import os; os.kill(os.getpid(), 9)", "import subprocess; subprocess.run(['sleep', '600'])"},
	"shell":      {"x=%d; head -c 100000 /dev/zero >f", "echo $x", "kill -9 $$", "sleep 600 & sleep 600"},
	"javascript": {"var x = %d; require('fs').writeFileSync('f', 'x'.repeat(100000))", "console.log(x)", "process.kill(process.pid, 9)", "while (true) {}"},
}

// use sets something and reads it back.
func (k *sessionSoak) use(id, language string, i int) error {
	if _, err := k.cell(id, fmt.Sprintf(speech[language].set, i), "sync"); err != nil {
		return err
	}
	for range 1 + rand.IntN(3) { //nolint:gosec // any number
		v, err := k.cell(id, speech[language].get, "sync")
		if err != nil {
			return err
		}
		if v.Status != "succeeded" || v.Stdout != fmt.Sprintf("%d\n", i) {
			return fmt.Errorf("%s and printed %q, want %d", v.Status, v.Stdout, i)
		}
	}
	return nil
}

// sessionCell is the result of code in a session.
type sessionCell struct {
	state
	Signal  string `json:"signal"`
	Session string `json:"session_state"`
}

func (k *sessionSoak) cell(id, code, how string) (v sessionCell, err error) {
	err = k.server.JSON(http.MethodPost, "/api/v1/exec/"+how, fmt.Sprintf(`{"session_id":%q,"code":%q}`, id, code), &v)
	return v, err
}

// end ends it as way says, and waits until it is closed.
func (k *sessionSoak) end(id, language, way string, i int) error {
	at := "/api/v1/sessions/" + id
	var s map[string]any
	switch way {
	case "closed while it runs":
		if _, err := k.cell(id, speech[language].forever, "async"); err != nil {
			return err
		}
	case "interpreter killed", "restarted":
		v, err := k.cell(id, speech[language].die, "sync")
		if err != nil {
			return err
		}
		if v.Session != "lost" || v.Signal != "SIGKILL" {
			return fmt.Errorf("an interpreter that was killed: %+v", v)
		}
		if way == "restarted" {
			if err := k.server.JSON(http.MethodPost, at+"/restart", `{"wipe":false}`, &s); err != nil {
				return err
			}
			if err := k.use(id, language, -i); err != nil {
				return fmt.Errorf("after the restart: %w", err)
			}
		}
	case "idle":
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if err := k.server.JSON(http.MethodGet, at, "", &s); err != nil {
				return err
			}
			if s["status"] == "closed" {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("it is still %v", s["status"])
			}
		}
	}
	return k.server.JSON(http.MethodDelete, at, "", &s)
}

// hammer has many clients use one session: no cell runs beside another, each client's come in its order, none is lost and
// none runs twice.
func (k *sessionSoak) hammer() error {
	var s struct {
		ID string `json:"session_id"`
	}
	if err := k.server.JSON(http.MethodPost, "/api/v1/sessions", `{}`, &s); err != nil {
		return err
	}
	if _, err := k.cell(s.ID, "busy = False; seen = []", "sync"); err != nil {
		return err
	}
	begin := time.Now()
	var wg sync.WaitGroup
	failures := make([]error, hammers)
	for client := range hammers {
		wg.Go(func() {
			for n := range hammered {
				code := fmt.Sprintf("assert not busy\nbusy = True\nimport time; time.sleep(0.001)\nseen.append((%d, %d)); busy = False\nprint(len(seen))", client, n)
				v, err := k.cell(s.ID, code, "sync")
				if err == nil && (v.Status != "succeeded" || v.Session != "kept") {
					err = fmt.Errorf("%+v", v)
				}
				if err != nil {
					failures[client] = fmt.Errorf("client %d, cell %d: %w", client, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("%s: hammered: %w", k.name, err)
	}
	check := fmt.Sprintf("print(len(seen), all([n for c, n in seen if c == client] == list(range(%d)) for client in range(%d)))", hammered, hammers)
	v, err := k.cell(s.ID, check, "sync")
	if want := fmt.Sprintf("%d True\n", hammers*hammered); err != nil || v.Stdout != want {
		return fmt.Errorf("%s: hammered: %q, want %q (%w)", k.name, v.Stdout, want, err)
	}
	fmt.Printf("%s: one session, %d clients, %d cells in order in %s\n", k.name, hammers, hammers*hammered, time.Since(begin).Round(time.Millisecond))
	var closed map[string]any
	return k.server.JSON(http.MethodDelete, "/api/v1/sessions/"+s.ID, "", &closed)
}

// grown is how much more memory core and plugin may have than before: what a runtime keeps for the next time.
const grown = 32 << 20

// rest waits until nothing of any session is left, and what there is is what there was; an error says what is not.
func (k *sessionSoak) rest(before usage) (now usage, err error) {
	// An interpreter may be kept ready for a session like the last one: let that be the same each time.
	var last, closed map[string]any
	err = k.server.JSON(http.MethodPost, "/api/v1/sessions", `{"language":"python"}`, &last)
	if err == nil {
		err = k.server.JSON(http.MethodDelete, fmt.Sprint("/api/v1/sessions/", last["session_id"]), "", &closed)
	}
	if err != nil {
		return now, err
	}
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		now, err = k.usage()
		if err == nil && before != (usage{}) {
			err = now.beyond(before)
		}
		if err == nil {
			again, failed := k.usage()
			if failed == nil && again.processes == now.processes && again.files == now.files && (before != usage{} || k.settled(now)) {
				return now, nil
			}
		}
		if time.Now().After(deadline) {
			return now, errors.Join(err, errors.New(k.name+": it did not come to rest"))
		}
	}
}

// settled reports, where there is nothing yet to compare with, whether a second goes by without a change.
func (k *sessionSoak) settled(now usage) bool {
	time.Sleep(time.Second)
	again, err := k.usage()
	return err == nil && again.processes == now.processes && again.files == now.files && again.descriptors == now.descriptors
}

// beyond says what of u is more than before.
func (u usage) beyond(before usage) error {
	switch {
	case u.processes > before.processes:
		return fmt.Errorf("%d processes, before %d", u.processes, before.processes)
	case u.files > before.files:
		return fmt.Errorf("%d files, before %d", u.files, before.files)
	case u.descriptors > before.descriptors+8: // connections that a client keeps
		return fmt.Errorf("%d descriptors, before %d", u.descriptors, before.descriptors)
	case u.core > before.core+grown || u.plugin > before.plugin+grown:
		return fmt.Errorf("%v; before %v", u, before)
	}
	return nil
}

func (k *sessionSoak) usage() (u usage, err error) {
	plugin := k.server.PluginPID()
	if plugin == 0 {
		return u, errors.New("the plugin is away")
	}
	serve.CloseIdle()
	u.core, _ = serve.RSS(k.server.PID())
	u.plugin, _ = serve.RSS(plugin)
	for _, pid := range []int{k.server.PID(), plugin} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return u, err
		}
		u.descriptors += len(entries)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return u, err
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ")) // it may have ended
		if slices.ContainsFunc(strings.Split(string(environ), "\x00"), func(kv string) bool { return strings.Contains(kv, k.server.Dir) }) {
			u.processes++
		}
	}
	err = filepath.WalkDir(filepath.Join(k.server.Dir, "work"), func(_ string, _ fs.DirEntry, err error) error {
		if err == nil {
			u.files++
		}
		return nil
	})
	return u, err
}

// runSessionsInContainers does the same on Docker, where nothing may be left in the daemon in the end.
func runSessionsInContainers(binary string, count int) (err error) {
	if count == 0 {
		return nil
	}
	host, err := dockertest.Find()
	if err != nil {
		fmt.Println("no Docker is at hand: sessions in containers are not soaked:", err)
		return nil
	}
	image, err := dockertest.Import(context.Background(), host, "python")
	if err != nil {
		return err
	}
	c := &containers{host: host}
	before, err := c.counts()
	if err != nil {
		return err
	}
	err = runSessions(binary, "sessions in containers", count, func(s *serve.Server) error {
		raw, err := os.ReadFile(filepath.Join(s.Dir, "data", "instance"))
		c.label = "python-executor.instance=" + strings.TrimSpace(string(raw))
		return err
	}, "PYEXEC_BACKEND=docker", "PYEXEC_BACKENDS_DOCKER_HOST="+host, "PYEXEC_BACKENDS_DOCKER_DEFAULT_IMAGE="+image)
	if err != nil {
		return err
	}
	return c.baseline(before)
}
