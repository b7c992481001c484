// Command bench measures python-executor next to what a user would otherwise do, interleaved in one run, because machines
// are noisy and only ratios of neighbours mean something. It prints a table and keeps every number as JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

func main() {
	opts := options{}
	flag.StringVar(&opts.binary, "binary", "bin/python-executor", "the program under test")
	flag.StringVar(&opts.python, "python", "/usr/bin/python3", "the bare interpreter to compare with")
	flag.StringVar(&opts.uv, "uv", "", "uv's real binary; empty: that comparison is left out, and says so")
	flag.StringVar(&opts.jupyter, "jupyter", "", "a Python with jupyter_kernel_gateway, ipykernel and websocket-client; empty: sessions are left out, and it says so")
	flag.StringVar(&opts.out, "out", "", "file for the raw numbers (JSON)")
	flag.StringVar(&opts.against, "against", "", "another build: measure it and -binary in turns, and nothing else")
	only := flag.String("cases", ".", "regular expression: only the cases whose names match, and of `throughput` and `tar` likewise")
	flag.IntVar(&opts.rounds, "rounds", 200, "interleaved rounds")
	flag.IntVar(&opts.tarMB, "tar-mb", 1024, "size of the tar in MB, 0 to leave it out")
	flag.DurationVar(&opts.sustained, "sustained", 60*time.Second, "how long each side of the sustained load of Docker goes on")
	flag.Parse()
	var err error
	if opts.cases, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	binary, python, uv, jupyter, out, against string
	rounds, tarMB                             int
	sustained                                 time.Duration
	cases                                     *regexp.Regexp
}

// report is what is kept: the raw samples in milliseconds by case, and single figures.
type report struct {
	Date     time.Time            `json:"date"`
	Machine  map[string]string    `json:"machine"`
	Versions map[string]string    `json:"versions"`
	Samples  map[string][]float64 `json:"samples_ms"`
	Figures  map[string]float64   `json:"figures"`
}

// measure is one thing that is timed once a round.
type measure struct {
	name  string
	every int // only each n-th round: slow things would otherwise set the pace
	do    func() error
}

const (
	hello     = "print('hello')\n"
	httpHello = `{"code":"print('hello')"}`
	// requirement is one that programs really use: its import takes longer than the interpreter's start.
	requirement     = "requests==2.32.3"
	httpRequirement = `{"code":"import requests; print('hello')","requirements_txt":"` + requirement + `"}`
)

func run(opts options) error {
	dir, err := os.MkdirTemp("", "pyexec-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	binary, err := filepath.Abs(opts.binary)
	if err != nil {
		return err
	}
	script := filepath.Join(dir, "hello.py")
	if err := os.WriteFile(script, []byte(hello), 0o644); err != nil { //nolint:gosec // read by another user
		return err
	}
	s := &serve.Server{Binary: binary, Dir: dir}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()

	r := &report{
		Date:     time.Now().UTC().Truncate(time.Second),
		Machine:  map[string]string{"cpus": fmt.Sprint(runtime.NumCPU()), "kernel": firstLine("uname", "-r")},
		Versions: map[string]string{"python-executor": firstLine(binary, "version"), "python": firstLine(opts.python, "--version"), "go": runtime.Version()},
		Samples:  map[string][]float64{}, Figures: map[string]float64{},
	}
	if opts.against != "" {
		if err := against(r, opts, s, script); err != nil {
			return err
		}
		return r.keep(opts.out)
	}
	measures, err := cases(opts, r, s, binary, dir, script)
	if err != nil {
		return err
	}
	if err := interleave(r, opts, measures); err != nil {
		return err
	}
	if slices.ContainsFunc(sessionNames, opts.cases.MatchString) {
		if err := sessions(r, opts, s, dir); err != nil {
			return err
		}
	}
	if opts.cases.MatchString("throughput") {
		if err := throughput(r, s, opts.python, script); err != nil {
			return err
		}
	}
	if opts.cases.MatchString("mcp") {
		if err := mcp(r, opts, dir, binary); err != nil {
			return err
		}
	}
	if opts.tarMB > 0 && opts.cases.MatchString("tar") {
		if err := bigTar(r, opts, dir, binary); err != nil {
			return err
		}
	}
	defer func() {
		if err := dockertest.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop Docker:", err)
		}
	}()
	if slices.ContainsFunc(nomadNames, opts.cases.MatchString) {
		if err := measureNomad(r, opts, s, binary); err != nil {
			return err
		}
	}
	// Last: a daemon that makes and removes containers is no quiet neighbour.
	var d *docker
	if slices.ContainsFunc(dockerNames, opts.cases.MatchString) {
		if d, err = startDocker(r, dir, binary); err != nil {
			return err
		}
		defer d.stop()
		if err := interleave(r, opts, d.cases()); err != nil {
			return err
		}
	}
	if err := d.load(r, opts, dir, binary); err != nil {
		return err
	}
	r.print(os.Stdout)
	return r.keep(opts.out)
}

// keep writes the report to a file; none if the path is empty.
func (r *report) keep(path string) error {
	if path == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644) //nolint:gosec // numbers are for everybody
}

// interleave takes its turns with those of measures that are asked for.
func interleave(r *report, opts options, measures []measure) error {
	measures = slices.DeleteFunc(measures, func(m measure) bool { return !opts.cases.MatchString(m.name) })
	for _, m := range measures { // warm-up, and proof that each works
		if err := m.do(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for round := range opts.rounds {
		for _, m := range measures {
			if round%m.every != 0 {
				continue
			}
			begin := time.Now()
			if err := m.do(); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			r.Samples[m.name] = append(r.Samples[m.name], float64(time.Since(begin).Microseconds())/1000)
		}
	}
	return nil
}

// cases lists what is compared.
func cases(opts options, r *report, s *serve.Server, binary, dir, script string) ([]measure, error) {
	measures := []measure{
		{"bare python", 1, func() error { return command(nil, opts.python, script) }},
		{"http sync", 1, func() error { return sync(s, httpHello) }},
		{"cli embedded", 5, func() error {
			return command([]string{"PYEXEC_BACKENDS_UV_CACHE_DIR=" + filepath.Join(dir, "cache")}, binary, "run", script)
		}},
	}
	if opts.cases.MatchString("requirement") {
		more, err := requirementCases(opts, r, s, dir)
		if err != nil {
			return nil, err
		}
		measures = append(measures, more...)
	}
	if opts.uv != "" {
		r.Versions["uv"] = firstLine(opts.uv, "--version")
		measures = append(measures, measure{"uv run", 5, func() error {
			return command(nil, opts.uv, "run", "--no-project", "--python", opts.python, script)
		}})
	} else {
		fmt.Println("uv was not given: `uv run` is not measured")
	}
	return measures, nil
}

// requirementCases compares a program with a requirement in a venv and over HTTP, installed and cached on both sides.
func requirementCases(opts options, r *report, s *serve.Server, dir string) ([]measure, error) {
	// Both sides import compiled bytecode: pip compiles what it installs, and so does the uv backend.
	r.Versions["requirement"] = requirement + ", bytecode compiled on both sides"
	venv := filepath.Join(dir, "venv")
	if out, err := exec.Command(opts.python, "-m", "venv", venv).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("venv: %w: %s", err, out)
	}
	venvPython := filepath.Join(venv, "bin", "python")
	if out, err := exec.Command(venvPython, "-m", "pip", "install", "-q", requirement).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pip: %w: %s", err, out)
	}
	withRequirement := filepath.Join(dir, "with_requirement.py")
	if err := os.WriteFile(withRequirement, []byte("import requests; "+hello), 0o644); err != nil { //nolint:gosec // read by another user
		return nil, err
	}
	return []measure{
		{"bare venv python, requirement", 1, func() error { return command(nil, venvPython, withRequirement) }},
		{"http sync, cached requirement", 1, func() error { return sync(s, httpRequirement) }},
	}, nil
}

func firstLine(name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	if string(out) != "hello\n" {
		return fmt.Errorf("printed %q", out)
	}
	return nil
}

func sync(s *serve.Server, body string) error {
	var v struct {
		Status, Stdout string
	}
	if err := s.JSON("POST", "/api/v1/exec/sync", body, &v); err != nil {
		return err
	}
	if v.Status != "succeeded" || v.Stdout != "hello\n" {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
