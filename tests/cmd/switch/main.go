// Command switch puts a server under load while its configuration goes uv → docker → Nomad's jobs → Nomad's workers → another plugin → uv,
// with a session open on each that has sessions, and ten broken configurations in between. No request may fail, executions must run on
// every backend, and every session works until it is closed. A step whose backend is not at hand is left out, and said so.
//
// What waits in the queue stays on the backend that accepted it. So a backend that is slower than the load needs a shorter leg (-legs),
// or the load is over before it has caught up.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
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

func main() {
	binary := flag.String("binary", "bin/python-executor", "the program")
	plugin := flag.String("plugin", "", "path of another backend's plugin; empty: the step is left out")
	rate := flag.Int("rate", 20, "executions per second")
	length := flag.Duration("for", time.Minute, "length of the load")
	users := flag.String("run-as", "", "uids of the uv backend (run_as); empty: its default")
	legs := flag.String("legs", "", "shares of the load's length, one for each backend in turn, such as 4,1,4,3; empty: equal ones, but for Nomad's jobs")
	docker := flag.Bool("docker", true, "go to docker, too, if there is one")
	nomad := flag.Bool("nomad", true, "go to both modes of Nomad, too, if there are a Nomad (tools/nomad.sh) and a docker")
	flag.Parse()
	if err := run(*binary, *plugin, *users, *legs, *docker, *nomad, *rate, *length); err != nil {
		fmt.Fprintln(os.Stderr, "switch:", err)
		os.Exit(1)
	}
}

// stage is one backend that the configuration goes to.
type stage struct {
	name, section string
	share         float64 // of the load's length, unless -legs says another
}

// stages returns the backends in turn, and the Nomad that some of them need; nil: none does. The caller stops it.
func stages(binary, plugin, users string, docker, nomad bool, dir string) ([]stage, *site, error) {
	uv := stage{"uv", fmt.Sprintf("{cache_dir: %q, work_dir: %q", filepath.Join(dir, "cache"), filepath.Join(dir, "work")), 1}
	if users != "" {
		uv.section += ", run_as: " + users
	}
	uv.section += "}"
	list := []stage{uv}
	host, image, err := "", "", errNotAsked
	if docker || nomad {
		host, err = dockertest.Find()
	}
	if err == nil {
		image, err = dockertest.Import(context.Background(), host, "python")
	}
	if err != nil {
		fmt.Println("without docker:", err)
	} else if docker {
		list = append(list, stage{"docker", fmt.Sprintf("{host: %q, default_image: %q}", host, image), 1})
	}
	var cluster *site
	if err == nil && nomad {
		if cluster, err = newSite(binary, image, dir); err == nil {
			list = append(list, cluster.stages(image)...)
		}
	}
	if err != nil || !nomad {
		fmt.Println("without Nomad:", cmp.Or(err, errNotAsked))
	}
	if plugin == "" {
		fmt.Println("without another plugin (-plugin PATH)")
	} else {
		path, err := filepath.Abs(plugin)
		if err != nil {
			return nil, cluster, err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, cluster, err
		}
		sum := sha256.Sum256(raw)
		list = append(list, stage{"other", fmt.Sprintf("{path: %q, sha256: %q}", path, hex.EncodeToString(sum[:])), 1})
	}
	return append(list, uv), cluster, nil
}

// errNotAsked is why a backend is left out that a flag has switched off.
var errNotAsked = errors.New("not asked for")

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
	ran      map[string]int           // by backend
	slowest  map[string]time.Duration // by backend
	failures []string
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, err.Error())
}

// count adds an execution that took that long.
func (w *world) count(backend string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran[backend]++
	w.slowest[backend] = max(w.slowest[backend], took)
}

func run(binary, plugin, users, legs string, docker, nomad bool, rate int, length time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "pyexec-switch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer func() { err = errors.Join(err, dockertest.Stop()) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	list, cluster, err := stages(binary, plugin, users, docker, nomad, dir)
	defer func() { err = errors.Join(err, cluster.stop()) }() // after the server was stopped
	if err != nil {
		return err
	}
	line, err := timeline(list, legs, length)
	if err != nil {
		return err
	}
	w := &world{file: filepath.Join(dir, "c.yaml"), ran: map[string]int{}, slowest: map[string]time.Duration{}}
	if err := w.write(config(list[0])); err != nil {
		return err
	}
	w.Server = &serve.Server{Binary: binary, Dir: dir, Env: []string{"PYEXEC_CONFIG=" + w.file}}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	began := time.Now()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		w.load(rate, length)
	}()
	err = w.follow(list, line, loaded)
	<-loaded
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range list[:len(list)-1] {
		fmt.Printf("%s: %d executions, the slowest took %s\n", at.name, w.ran[at.name], w.slowest[at.name].Round(time.Millisecond))
		if w.ran[at.name] == 0 {
			err = errors.Join(err, fmt.Errorf("no execution ran on %s: give it another leg (-legs)", at.name))
		}
	}
	fmt.Printf("%d requests failed in %s\n", len(w.failures), time.Since(began).Round(time.Second))
	if len(w.failures) > 0 {
		err = errors.Join(err, fmt.Errorf("failed requests:\n%s", strings.Join(w.failures[:min(len(w.failures), 10)], "\n")))
	}
	return err
}

// moment is when the configuration changes: to a backend, or to something broken.
type moment struct {
	at     time.Duration
	to     int    // index of the stage
	broken string // if the file is broken then
	breaks bool
}

// timeline returns the changes in their order. The broken configurations are spread evenly.
func timeline(list []stage, legs string, length time.Duration) ([]moment, error) {
	shares, sum := make([]float64, len(list)), 0.0
	words := strings.Split(legs, ",")
	if legs != "" && len(words) != len(list) {
		return nil, fmt.Errorf("-legs: must have %d shares (got %q)", len(list), legs)
	}
	for i := range list {
		if shares[i] = list[i].share; legs != "" {
			share, err := strconv.ParseFloat(words[i], 64)
			if err != nil || !(share > 0) {
				return nil, fmt.Errorf("-legs: must have numbers above 0 (got %q)", legs)
			}
			shares[i] = share
		}
		sum += shares[i]
	}
	var line []moment
	from := 0.0
	for i, share := range shares {
		line = append(line, moment{at: time.Duration(from / sum * float64(length)), to: i})
		from += share
	}
	for i, text := range broken {
		line = append(line, moment{at: length * time.Duration(2*i+1) / time.Duration(2*len(broken)), breaks: true, broken: text})
	}
	slices.SortStableFunc(line, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return line, nil
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
			var x struct {
				Status, Stdout, Backend string
				Error                   any
			}
			err := w.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"print(6*7)"}`, &x)
			if err == nil && (x.Status != "succeeded" || x.Stdout != "42\n") {
				err = fmt.Errorf("%+v", x)
			}
			if err != nil {
				w.fail(err)
			} else {
				w.count(x.Backend, time.Since(began))
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
	return serve.Await(what, func() (bool, error) {
		names, warnings, err := w.names()
		return err == nil && ok(names, warnings), err
	})
}

// live opens a session on a backend, and uses it every second until over is closed.
func (w *world) live(backend string, over <-chan struct{}) error {
	var v struct {
		ID string `json:"session_id"`
	}
	if err := w.JSON(http.MethodPost, "/api/v1/sessions", `{}`, &v); err != nil {
		return fmt.Errorf("open a session on %s: %w", backend, err)
	}
	use := func(code, want string) error {
		var x struct {
			Status, Stdout, Backend string
			Error                   any
		}
		err := w.JSON(http.MethodPost, "/api/v1/exec/sync", fmt.Sprintf(`{"session_id":%q,"code":%q}`, v.ID, code), &x)
		if err == nil && (x.Status != "succeeded" || x.Stdout != want || x.Backend != backend) {
			err = fmt.Errorf("session of %s: %+v", backend, x)
		}
		return err
	}
	err := use("x = 1", "")
	for ended := false; err == nil && !ended; {
		select {
		case <-over:
			ended = true
		case <-time.After(time.Second):
		}
		err = use("print(x)", "1\n")
	}
	return errors.Join(err, w.JSON(http.MethodDelete, "/api/v1/sessions/"+v.ID, "", new(any)))
}

// follow goes through the timeline, with a session on each backend, and waits until all is drained after the load.
func (w *world) follow(list []stage, line []moment, loaded <-chan struct{}) error {
	began := time.Now()
	over := make(chan struct{})
	var sessions sync.WaitGroup
	var once sync.Once
	end := func() { once.Do(func() { close(over) }); sessions.Wait() }
	defer end()
	present := list[0]
	var lived atomic.Int64
	for _, m := range line {
		time.Sleep(m.at - time.Since(began))
		if m.breaks {
			if err := w.breaks(m.broken, present); err != nil {
				return err
			}
			continue
		}
		if m.to > 0 {
			before := present
			present = list[m.to]
			if err := w.write(config(present)); err != nil {
				return err
			}
			since := time.Now()
			if err := w.await("the switch to "+present.name, func(names []string, _ string) bool { return names[0] == present.name }); err != nil {
				return err
			}
			fmt.Printf("%4.1fs: %s → %s after %s\n", since.Sub(began).Seconds(), before.name, present.name, time.Since(since).Round(10*time.Millisecond))
		}
		backend := present.name
		sessions.Go(func() {
			switch err := w.live(backend, over); {
			case err == nil:
				lived.Add(1)
			case (backend == "other" || backend == "nomad") && strings.Contains(err.Error(), ": 501 "):
				fmt.Println("no sessions on", backend)
			default:
				w.fail(err)
			}
		})
	}
	<-loaded
	end()
	if err := w.await("the end of the drains", func(names []string, _ string) bool { return len(names) == 1 && names[0] == present.name }); err != nil {
		return err
	}
	fmt.Printf("%d sessions kept their state to their end, %d broken configurations changed nothing\n", lived.Load(), len(broken))
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
	isNew := func(name string) bool { return !slices.Contains(before, name) } // a drain may have ended
	if err == nil && (after[0] != before[0] || slices.ContainsFunc(after, isNew)) {
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
