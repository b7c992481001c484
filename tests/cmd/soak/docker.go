package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// containers is the soak of the Docker backend: programs run while the core, the plugin or a container's shim is killed
// with SIGKILL at random points. Every accepted execution must end with the right result or as lost, only a killed shim may
// lose one, and the daemon must have at the end what it had at the start.
type containers struct {
	server *serve.Server
	host   string
	label  string
	kills  map[string]int
}

// packages that programs really use, compiled code of all kinds among them.
var packages = []string{
	"numpy", "pandas", "requests", "pillow", "matplotlib", "lxml", "cryptography", "scipy", "scikit-learn", "pyyaml", "sqlalchemy", "pydantic", "aiohttp", "beautifulsoup4",
}

// imports are their modules, used a little: a missing system call or folder shows when something is done.
const imports = `
import numpy, pandas, requests, PIL.Image, matplotlib, lxml.etree, cryptography.fernet, scipy.linalg, sklearn.linear_model, yaml, sqlalchemy, pydantic, aiohttp, bs4
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.savefig("plot.png")
assert PIL.Image.open("plot.png").size[0] > 100
assert lxml.etree.fromstring("<a><b/></a>")[0].tag == "b"
key = cryptography.fernet.Fernet.generate_key()
assert cryptography.fernet.Fernet(key).decrypt(cryptography.fernet.Fernet(key).encrypt(b"x")) == b"x"
assert pandas.DataFrame({"a": [1, 2]}).a.sum() == 3
assert abs(scipy.linalg.det(numpy.eye(3)) - 1) < 1e-9
assert sklearn.linear_model.LinearRegression().fit([[0], [1]], [0, 1]).predict([[2]])[0] > 1.9
engine = sqlalchemy.create_engine("sqlite:///file.db")
with engine.connect() as c: assert c.execute(sqlalchemy.text("select 1")).scalar() == 1
import multiprocessing, concurrent.futures, tempfile, sqlite3, subprocess
with concurrent.futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1, -2])) == [1, 2]
tempfile.TemporaryFile().write(b"x"); subprocess.run(["true"], check=True)
print("all work")
`

func runContainers(binary string, rounds int) (err error) {
	host, err := dockertest.Find()
	if err != nil {
		fmt.Println("no Docker is at hand: its backend is not soaked:", err)
		return nil
	}
	image, err := dockertest.Import(context.Background(), host, "python")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pyexec-soak-docker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &containers{host: host, kills: map[string]int{}, server: &serve.Server{Binary: binary, Dir: dir, Env: []string{
		"PYEXEC_BACKEND=docker", "PYEXEC_BACKENDS_DOCKER_HOST=" + host, "PYEXEC_BACKENDS_DOCKER_DEFAULT_IMAGE=" + image,
	}}}
	before, err := c.counts()
	if err != nil {
		return err
	}
	if err := c.server.Start(); err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			c.server.Stop()
		}
	}()
	raw, err := os.ReadFile(filepath.Join(dir, "data", "instance"))
	if err != nil {
		return err
	}
	c.label = "python-executor.instance=" + strings.TrimSpace(string(raw))
	if err := c.heavy(); err != nil {
		return err
	}
	if err := c.rounds(rounds); err != nil {
		return err
	}
	stopped = true
	c.server.Stop()
	return c.baseline(before)
}

// baseline holds that nothing of ours is left; in a Docker of our own, that nothing at all is.
func (c *containers) baseline(before [3]int) error {
	for _, args := range [][]string{{"ps", "--all", "--quiet"}, {"volume", "ls", "--quiet"}, {"network", "ls", "--quiet"}} {
		left, err := c.list(append(args, "--filter", "label="+c.label)...)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("docker: of ours are left: %v", left)
		}
	}
	after, err := c.counts()
	if err != nil {
		return err
	}
	fmt.Printf("docker: containers, volumes and networks before %v, after %v\n", before, after)
	if before != after && dockertest.Private() {
		return errors.New("docker: the daemon's objects are not what they were")
	}
	return nil
}

// counts are the daemon's containers, volumes and networks.
func (c *containers) counts() (n [3]int, err error) {
	for i, args := range [][]string{{"ps", "--all", "--quiet"}, {"volume", "ls", "--quiet"}, {"network", "ls", "--quiet"}} {
		list, failed := c.list(args...)
		n[i], err = len(list), errors.Join(err, failed)
	}
	return n, err
}

func (c *containers) list(args ...string) ([]string, error) {
	out, err := exec.Command("docker", append([]string{"--host", c.host}, args...)...).Output()
	return strings.Fields(string(out)), err
}

// heavy installs and imports packages under the profile.
func (c *containers) heavy() error {
	begin := time.Now()
	var v struct {
		Status, Stdout, Stderr string
		Signal                 *string
		Error                  *struct{ Message string }
		Resolved               []string `json:"resolved_requirements"`
	}
	body := fmt.Sprintf(`{"code":%q,"requirements_txt":%q,"config":{"timeout_seconds":300}}`, imports, strings.Join(packages, "\n"))
	if err := c.server.JSON(http.MethodPost, "/api/v1/exec/sync", body, &v); err != nil {
		return err
	}
	if v.Status != "succeeded" || v.Stdout != "all work\n" {
		return fmt.Errorf("docker: the heavy packages: %s %v %+v\n%s", v.Status, v.Signal, v.Error, v.Stderr)
	}
	fmt.Printf("docker: %d heavy packages (%d with what they need) installed and used in %s\n", len(packages), len(v.Resolved), time.Since(begin).Round(time.Millisecond))
	return nil
}

// program prints its number a few times; what is lost or doubled shows.
func program(i int) (body, want string) {
	const lines = 20
	body = fmt.Sprintf(`{"code":"import time\nfor i in range(%d):\n  print(%d, i, flush=True); time.sleep(0.05)","idempotency_key":"soak-docker-%d"}`, lines, i, i)
	var b strings.Builder
	for n := range lines {
		fmt.Fprintln(&b, i, n)
	}
	return body, b.String()
}

// rounds submits and kills. Three programs run at each kill.
func (c *containers) rounds(count int) error {
	const each = 3
	statuses := map[string]int{}
	number := 0
	for round := range count {
		var mu sync.Mutex
		ids := map[string]string{}
		for range each {
			number++
			body, want := program(number)
			v, err := c.submit(body)
			if err != nil {
				return fmt.Errorf("docker: round %d: submit: %w", round, err)
			}
			mu.Lock()
			ids[v.ID] = want
			mu.Unlock()
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond) //nolint:gosec // any moment will do
		what := []string{"core", "plugin", "shim"}[rand.IntN(3)]      //nolint:gosec // likewise
		if err := c.kill(what); err != nil {
			return fmt.Errorf("docker: round %d: kill the %s: %w", round, what, err)
		}
		lost := 0
		for id, want := range ids {
			v, err := c.finished(id)
			if err != nil {
				return fmt.Errorf("docker: round %d, after the %s was killed: %w", round, what, err)
			}
			statuses[v.Status]++
			switch {
			case v.Status == "succeeded" && v.Stdout == want:
			case v.Status == "lost" && strings.HasPrefix(want, v.Stdout):
				lost++
			default:
				return fmt.Errorf("docker: round %d, after the %s was killed: %s is %s and printed %q", round, what, id, v.Status, v.Stdout)
			}
		}
		if limit := map[string]int{"shim": 1}[what]; lost > limit {
			return fmt.Errorf("docker: round %d: %d executions are lost after the %s was killed, at most %d may be", round, lost, what, limit)
		}
		if round%20 == 19 {
			fmt.Printf("docker: %d rounds, kills %v, executions %v\n", round+1, c.kills, statuses)
		}
	}
	return nil
}

// submit is accepted at last: while a plugin that was killed is started again the server says 503, which means retry.
func (c *containers) submit(body string) (v state, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = c.server.JSON(http.MethodPost, "/api/v1/exec/async", body, &v); err == nil {
			return v, nil
		}
	}
	return v, err
}

// kill ends one of them with SIGKILL.
func (c *containers) kill(what string) error {
	c.kills[what]++
	switch what {
	case "core":
		c.server.Kill()
		return c.server.Start()
	case "plugin":
		if pid := c.server.PluginPID(); pid > 0 {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
		return nil
	}
	ids, err := c.list("ps", "--quiet", "--no-trunc", "--filter", "label="+c.label)
	if err != nil || len(ids) == 0 {
		return err
	}
	id := ids[rand.IntN(len(ids))] //nolint:gosec // any will do
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(raw), "containerd-shim") || !strings.Contains(string(raw), id) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			return nil
		}
	}
	return nil // its daemon is on another machine, or it has ended
}

// finished waits for an execution's end.
func (c *containers) finished(id string) (v state, err error) {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = c.server.JSON(http.MethodGet, "/api/v1/executions/"+id, "", &v); err == nil && v.Status != "queued" && v.Status != "running" {
			return v, nil
		}
	}
	return v, fmt.Errorf("%s never ended: %+v (%w)", id, v, err)
}
