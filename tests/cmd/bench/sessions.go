package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

//go:embed jupyter.py
var jupyterDriver string

// sessionNames are what a choice of cases may match of sessions.
var sessionNames = []string{"session cell", "session creation", "session memory", "jupyter cell", "jupyter kernel start"}

// jupyter is a kernel gateway and its client.
type jupyter struct {
	cmd    *exec.Cmd
	ask    io.WriteCloser
	answer *bufio.Reader
	pid    int // the gateway's
}

// startJupyter starts it with a Python that has jupyter_kernel_gateway, ipykernel and websocket-client.
func startJupyter(python, dir string) (*jupyter, error) {
	j := &jupyter{cmd: exec.Command(python, "-c", jupyterDriver)}
	j.cmd.Dir, j.cmd.Stderr = dir, os.Stderr
	j.cmd.Env = append(os.Environ(), "HOME="+dir, "JUPYTER_RUNTIME_DIR="+filepath.Join(dir, "jupyter"))
	var err error
	if j.ask, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.answer = bufio.NewReader(out)
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := j.answer.ReadString('\n')
	if err == nil {
		j.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the kernel gateway does not start: %w", err), j.stop())
	}
	return j, nil
}

// do has the client do one thing.
func (j *jupyter) do(what string) error {
	if _, err := fmt.Fprintln(j.ask, what); err != nil {
		return err
	}
	line, err := j.answer.ReadString('\n')
	if line = strings.TrimSpace(line); err == nil && line != "ok" {
		err = errors.New(line)
	}
	if err != nil {
		return fmt.Errorf("jupyter: %s: %w", what, err)
	}
	return nil
}

func (j *jupyter) stop() error {
	_ = j.ask.Close() // it ends at the end of its input
	return j.cmd.Wait()
}

// openSession opens a Session of ours.
func openSession(s *serve.Server) (id string, err error) {
	var v struct {
		ID string `json:"session_id"`
	}
	err = s.JSON(http.MethodPost, "/api/v1/sessions", `{}`, &v)
	return v.ID, err
}

func sessionCell(s *serve.Server, id string) error {
	var v struct {
		Status string
		State  string `json:"session_state"`
	}
	err := s.JSON(http.MethodPost, "/api/v1/exec/sync", `{"session_id":"`+id+`","code":"x = 1"}`, &v)
	if err == nil && (v.Status != "succeeded" || v.State != "kept") {
		err = fmt.Errorf("%+v", v)
	}
	return err
}

func closeSession(s *serve.Server, id string) error {
	var v struct{ Status string }
	return s.JSON(http.MethodDelete, "/api/v1/sessions/"+id, "", &v)
}

// sessions compares Sessions with kernels: a cell's round trip, the creation, and what an idle one weighs.
func sessions(b *bench) (err error) {
	r, opts, s, dir := b.run, b.options, b.server, b.dir
	if opts.jupyter == "" {
		fmt.Println("no Python with a kernel gateway was given: sessions are not measured")
		return nil
	}
	const packages = "import importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in ('jupyter_kernel_gateway', 'ipykernel', 'ipython')), sep=', ')"
	r.Versions["jupyter"] = firstLine(opts.jupyter, "-c", packages) + ", " + firstLine(opts.jupyter, "--version")
	j, err := startJupyter(opts.jupyter, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	id, err := openSession(s)
	if err != nil {
		return err
	}
	if err := j.do("new"); err != nil {
		return err
	}
	opened := ""
	cells := []measure{
		{"session cell", 1, timed(func() error { return sessionCell(s, id) })},
		{"jupyter cell", 1, timed(func() error { return j.do("cell") })},
	}
	creations := []measure{
		{"session creation", 1, timed(func() (err error) { opened, err = openSession(s); return err })},
		{"jupyter kernel start", 1, timed(func() error { return j.do("new") })},
	}
	if err := r.turns(cells, opts.rounds, func() error { return nil }); err != nil {
		return err
	}
	// A round of the other side's lies between two creations: time enough for the next interpreter to wait.
	err = r.turns(creations, max(opts.rounds/10, 5), func() error { return errors.Join(closeSession(s, opened), j.do("drop")) })
	if err != nil {
		return err
	}
	if err := errors.Join(closeSession(s, id), j.do("rid")); err != nil {
		return err
	}
	return sessionMemory(r, s, j)
}

// turns times measures in turns; after clears away what a round has left, untimed. The first round is a warm-up.
func (r *report) turns(measures []measure, rounds int, after func() error) error {
	for round := range rounds + 1 {
		for _, m := range measures {
			took, err := m.do()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if round > 0 {
				r.add(m.name, took)
			}
		}
		if err := after(); err != nil {
			return err
		}
	}
	return nil
}

// sessionMemory weighs idle ones: what all processes of either side have of their own more with ten than without.
func sessionMemory(r *report, s *serve.Server, j *jupyter) error {
	const many = 10
	ours, theirs := weight(s.PID()), weight(j.pid)
	var ids []string
	for range many {
		id, err := openSession(s)
		if err == nil {
			err = sessionCell(s, id)
		}
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := j.do(fmt.Sprint("many ", many)); err != nil {
		return err
	}
	r.Figures["idle session, MB"] = mb(weight(s.PID())-ours) / many
	r.Figures["idle kernel, MB"] = mb(weight(j.pid)-theirs) / many
	for _, id := range ids {
		if err := closeSession(s, id); err != nil {
			return err
		}
	}
	return j.do("rid")
}

// weight is the proportional memory (PSS) of a process and all that descends from it, in bytes.
func weight(pid int) (sum int64) {
	for _, pid := range descendants(pid) {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // it may have ended
		for line := range strings.SplitSeq(string(raw), "\n") {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				kb, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kb << 10
			}
		}
	}
	return sum
}
