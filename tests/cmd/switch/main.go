// Command switch puts a server under load while its configuration goes uv → docker → another plugin → uv, with sessions open and ten broken
// configurations in between. No request may fail, and every session works until it is closed. A step whose backend is not at hand is
// left out, and said so.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

func main() {
	binary := flag.String("binary", "bin/python-executor", "the program")
	plugin := flag.String("plugin", "", "path of another backend's plugin; empty: the step is left out")
	rate := flag.Int("rate", 20, "executions per second")
	length := flag.Duration("for", time.Minute, "length of the load")
	users := flag.String("run-as", "", "uids of the uv backend (run_as); empty: its default")
	docker := flag.Bool("docker", true, "go to docker, too, if there is one")
	flag.Parse()
	if err := run(*binary, *plugin, *users, *docker, *rate, *length); err != nil {
		fmt.Fprintln(os.Stderr, "switch:", err)
		os.Exit(1)
	}
}

// stage is one backend that the configuration goes to.
type stage struct{ name, section string }

func stages(plugin, users string, docker bool, dir string) ([]stage, error) {
	uv := stage{"uv", fmt.Sprintf("{cache_dir: %q, work_dir: %q", filepath.Join(dir, "cache"), filepath.Join(dir, "work"))}
	if users != "" {
		uv.section += ", run_as: " + users
	}
	uv.section += "}"
	list := []stage{uv}
	host, image, err := "", "", errors.New("not asked for")
	if docker {
		host, err = dockertest.Find()
	}
	if err == nil {
		image, err = dockertest.Import(context.Background(), host, "python")
	}
	if err != nil {
		fmt.Println("without docker:", err)
	} else {
		list = append(list, stage{"docker", fmt.Sprintf("{host: %q, default_image: %q}", host, image)})
	}
	if plugin == "" {
		fmt.Println("without another plugin (-plugin PATH)")
	} else {
		path, err := filepath.Abs(plugin)
		if err != nil {
			return nil, err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		list = append(list, stage{"other", fmt.Sprintf("{path: %q, sha256: %q}", path, hex.EncodeToString(sum[:]))})
	}
	return append(list, uv), nil
}

// broken are configurations that must change nothing.
var broken = []string{
	"a: [",
	"",
	"backend: nowhere\n",
	"bakend: uv\n",
	"backend: uv\nbackends: {uv: {no_such_key: 1}}\n",
	"backend: x\nbackends: {x: {type: none}}\n",
	"backend: x\nbackends: {x: {path: /no/such/plugin, sha256: " + sixtyFour + "}}\n",
	"backend: uv\nengine: {max_queued: -1}\n",
	"backend: uv\nhttp: {tokens: [{owner: a}]}\n",
	"backend: x\nbackends: {x: {path: /bin/true, sha256: " + sixtyFour + "}}\n",
}

const sixtyFour = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// world is the server with what was done to it.
type world struct {
	*serve.Server
	file string

	mu       sync.Mutex
	ran      map[string]int // by backend
	failures []string
	slowest  time.Duration
}

func run(binary, plugin, users string, docker bool, rate int, length time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "pyexec-switch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer func() { err = errors.Join(err, dockertest.Stop()) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	list, err := stages(plugin, users, docker, dir)
	if err != nil {
		return err
	}
	w := &world{file: filepath.Join(dir, "c.yaml"), ran: map[string]int{}}
	if err := w.write(config(list[0])); err != nil {
		return err
	}
	w.Server = &serve.Server{Binary: binary, Dir: dir, Env: []string{"PYEXEC_CONFIG=" + w.file}}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	var load sync.WaitGroup
	began := time.Now()
	load.Go(func() { w.load(rate, length) })
	err = w.follow(list, length)
	load.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for _, n := range w.ran {
		total += n
	}
	fmt.Printf("%d executions in %s (%v), the slowest took %s, %d failed\n", total, time.Since(began).Round(time.Second), w.ran, w.slowest.Round(time.Millisecond), len(w.failures))
	if len(w.failures) > 0 {
		err = errors.Join(err, fmt.Errorf("failed requests:\n%s", strings.Join(w.failures[:min(len(w.failures), 10)], "\n")))
	}
	return err
}

// config has few slots more than the load needs, and a drain that outlasts the load.
func config(s stage) string {
	return fmt.Sprintf("backend: %s\nbackends: {%s: %s}\nengine: {max_concurrent: 16, drain_timeout_seconds: 600}\n", s.name, s.name, s.section)
}

// write replaces the file by a rename.
func (w *world) write(text string) error {
	if err := os.WriteFile(w.file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(w.file+".new", w.file)
}

// load starts rate executions per second.
func (w *world) load(rate int, length time.Duration) {
	var wg sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-ticker.C {
		wg.Go(func() {
			began := time.Now()
			var x struct{ Status, Stdout, Backend string }
			err := w.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"print(6*7)"}`, &x)
			if err == nil && (x.Status != "succeeded" || x.Stdout != "42\n") {
				err = fmt.Errorf("%+v", x)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slowest = max(w.slowest, time.Since(began))
			if err != nil {
				w.failures = append(w.failures, err.Error())
			} else {
				w.ran[x.Backend]++
			}
		})
	}
	wg.Wait()
}

// names returns the backends, and what is said of the first one.
func (w *world) names() (names []string, warnings string, err error) {
	var v struct {
		Backends []struct {
			Name     string
			Warnings []string
		}
	}
	if err := w.JSON(http.MethodGet, "/api/v1/backends", "", &v); err != nil {
		return nil, "", err
	}
	for _, b := range v.Backends {
		names = append(names, b.Name)
	}
	return names, strings.Join(v.Backends[0].Warnings, "\n"), nil
}

func (w *world) await(what string, ok func(names []string, warnings string) bool) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		names, warnings, err := w.names()
		if err != nil {
			return err
		}
		if ok(names, warnings) {
			return nil
		}
	}
	return fmt.Errorf("never happened: %s", what)
}

// session is a session on the backend of one stage.
type session struct{ id, backend string }

func (w *world) open(backend string) (session, error) {
	var v struct {
		ID string `json:"session_id"`
	}
	if err := w.JSON(http.MethodPost, "/api/v1/sessions", `{}`, &v); err != nil {
		return session{}, err
	}
	s := session{v.ID, backend}
	return s, w.use(s, "x = 1", "")
}

func (w *world) use(s session, code, want string) error {
	var x struct{ Status, Stdout, Backend string }
	err := w.JSON(http.MethodPost, "/api/v1/exec/sync", fmt.Sprintf(`{"session_id":%q,"code":%q}`, s.id, code), &x)
	if err == nil && (x.Status != "succeeded" || x.Stdout != want || x.Backend != s.backend) {
		err = fmt.Errorf("session of %s: %+v", s.backend, x)
	}
	return err
}

// follow goes through the stages, with broken configurations and a session in each.
func (w *world) follow(list []stage, length time.Duration) error {
	var open []session
	next := 0
	pause := length / time.Duration(2*len(list)+len(broken)+2)
	for i, at := range list {
		if i > 0 {
			if err := w.write(config(at)); err != nil {
				return err
			}
			began := time.Now()
			if err := w.await("the switch to "+at.name, func(names []string, _ string) bool { return names[0] == at.name }); err != nil {
				return err
			}
			fmt.Printf("%s → %s after %s\n", list[i-1].name, at.name, time.Since(began).Round(10*time.Millisecond))
		}
		s, err := w.open(at.name)
		switch {
		case err == nil:
			open = append(open, s)
		case at.name == "other":
			fmt.Println("no session on the other plugin:", err)
		default:
			return fmt.Errorf("open a session on %s: %w", at.name, err)
		}
		time.Sleep(pause)
		for ; next < len(broken)*(i+1)/len(list); next++ {
			if err := w.breaks(broken[next], at); err != nil {
				return err
			}
			time.Sleep(pause)
		}
		for _, s := range open {
			if err := w.use(s, "print(x)", "1\n"); err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
	for _, s := range open {
		if err := w.JSON(http.MethodDelete, "/api/v1/sessions/"+s.id, "", new(any)); err != nil {
			return err
		}
	}
	last := list[len(list)-1].name
	if err := w.await("the end of the drains", func(names []string, _ string) bool { return len(names) == 1 && names[0] == last }); err != nil {
		return err
	}
	fmt.Printf("%d sessions kept their state to their end, %d broken configurations changed nothing\n", len(open), next)
	return nil
}

// breaks writes a broken configuration, waits until it is reported, and writes the good one again.
func (w *world) breaks(text string, present stage) error {
	before, _, err := w.names()
	if err != nil {
		return err
	}
	if err := w.write(text); err != nil {
		return err
	}
	if err := w.await(fmt.Sprintf("a report of %q", text), func(_ []string, warnings string) bool { return strings.Contains(warnings, "not in effect") }); err != nil {
		return err
	}
	after, _, err := w.names()
	if err == nil && fmt.Sprint(before) != fmt.Sprint(after) {
		err = fmt.Errorf("%q changed %v to %v", text, before, after)
	}
	if err != nil {
		return err
	}
	if err := w.write(config(present)); err != nil {
		return err
	}
	return w.await("the report is gone", func(_ []string, warnings string) bool { return !strings.Contains(warnings, "not in effect") })
}
