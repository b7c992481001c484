package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// The series of single calls.
const (
	barePython = "bare python"
	httpSync   = "http sync"
	userSync   = "http sync as an ordinary user"
	cachedSync = "http sync, cached requests and numpy"
	numpySync  = "http sync, numpy and requests imported before"
	venvPython = "bare venv python, requests and numpy"
	cliWhole   = "cli embedded"
	cliFirst   = "cli embedded, first output"
	uvWhole    = "uv run"
	uvFirst    = "uv run, first output"
)

const (
	hello     = "print('hello')\n"
	httpHello = `{"code":"print('hello')"}`
	// httpDisplaying is a program that displays its last value. A build without such programs runs it as one with a comment.
	httpDisplaying = `{"code":"# python-executor: display\nprint('hello')\n1 + 1"}`
	// requirements are those that programs really use: their import takes longer than the interpreter's start.
	requirements    = "requests==2.32.3 numpy==2.2.6"
	importing       = "import numpy, requests; "
	httpRequirement = `{"code":"import requests; print('hello')","requirements_txt":"requests==2.32.3"}`
	ordinaryUser    = 65534
	fifth           = 5
)

// single measures one call at a time: what a user waits for.
func single(b *bench) error {
	measures := []measure{
		{barePython, 1, timed(func() error { return command(nil, b.python, b.script) })},
		{httpSync, 1, timed(func() error { return sync(b.server, httpHello) })},
	}
	if b.wants(userSync) {
		s, err := b.userServer()
		if err != nil {
			return err
		}
		if s != nil {
			defer s.Stop()
			measures = append(measures, measure{userSync, 1, timed(func() error { return sync(s, httpHello) })})
		}
	}
	if b.wants(cachedSync, numpySync) {
		more, stop, err := b.requirementCases()
		if err != nil {
			return err
		}
		defer stop()
		measures = append(measures, more...)
	}
	cache := []string{"PYEXEC_BACKENDS_UV_CACHE_DIR=" + filepath.Join(b.dir, "cache")}
	measures = append(measures,
		measure{cliWhole, fifth, timed(func() error { return command(cache, b.binary, "run", b.script) })},
		measure{cliFirst, fifth, func() (time.Duration, error) { return firstOutput(cache, b.binary, "run", b.script) }})
	if b.uv == "" {
		fmt.Println("uv was not given: `uv run` is not measured")
	} else {
		b.run.Versions["uv"] = firstLine(b.uv, "--version")
		args := []string{"run", "--no-project", "--python", b.python, b.script}
		measures = append(measures,
			measure{uvWhole, fifth, timed(func() error { return command(nil, b.uv, args...) })},
			measure{uvFirst, fifth, func() (time.Duration, error) { return firstOutput(nil, b.uv, args...) }})
	}
	return b.interleave(measures)
}

// userServer starts a server of an ordinary user; nil without an error: this process cannot, and has said so.
func (b *bench) userServer() (*serve.Server, error) {
	if os.Geteuid() != 0 {
		fmt.Println("not root: a server of another user is not measured")
		return nil, nil
	}
	dir := filepath.Join(b.dir, "user")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, ordinaryUser, ordinaryUser)); err != nil { //nolint:gosec // as the folder of the other server
		return nil, err
	}
	// The user must be able to read the program, wherever the work tree is.
	binary := filepath.Join(b.dir, "python-executor")
	if _, err := os.Stat(binary); err != nil { // a former repetition made it
		if err := copyFile(b.binary, binary); err != nil {
			return nil, err
		}
	}
	s := &serve.Server{Binary: binary, Dir: dir, UID: ordinaryUser, Env: []string{"HOME=" + dir, "XDG_RUNTIME_DIR=", "TMPDIR="}}
	return s, s.Start()
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // another user starts it
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// requirementCases compares a program with requirements in a venv and over HTTP, installed and cached on both sides. The last case has a
// server of its own, whose configuration imports the modules in advance. The caller calls stop.
func (b *bench) requirementCases() (cases []measure, stop func(), err error) {
	// Both sides import compiled bytecode: pip compiles what it installs, and so does the uv backend.
	b.run.Versions["requirements"] = requirements + ", bytecode compiled on both sides"
	venv := filepath.Join(b.dir, "venv")
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err != nil { // a former repetition made it
		if out, err := exec.Command(b.python, "-m", "venv", venv).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("venv: %w: %s", err, out)
		}
		if out, err := exec.Command(python, append([]string{"-m", "pip", "install", "-q"}, strings.Fields(requirements)...)...).CombinedOutput(); err != nil { //nolint:gosec // constants
			return nil, nil, fmt.Errorf("pip: %w: %s", err, out)
		}
	}
	script := filepath.Join(b.dir, "importing.py")
	if err := os.WriteFile(script, []byte(importing+hello), 0o644); err != nil { //nolint:gosec // read by another user
		return nil, nil, err
	}
	body := `{"code":"` + importing + `print('hello')","requirements_txt":"` + strings.ReplaceAll(requirements, " ", `\n`) + `"}`
	before := &serve.Server{Binary: b.binary, Dir: filepath.Join(b.dir, "before"), Env: []string{"PYEXEC_BACKENDS_UV_PREIMPORT=numpy,requests"}}
	if err := errors.Join(os.MkdirAll(before.Dir, 0o755), before.Start()); err != nil { //nolint:gosec // as the folder of the other server
		return nil, nil, err
	}
	return []measure{
		{venvPython, 1, timed(func() error { return command(nil, python, script) })},
		{cachedSync, 1, timed(func() error { return sync(b.server, body) })},
		{numpySync, 1, timed(func() error { return sync(before, body) })},
	}, before.Stop, nil
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

// firstOutput returns the time from the start of a command to the first byte that it prints.
func firstOutput(env []string, name string, args ...string) (time.Duration, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(stdout, first)
	took := time.Since(begin)
	rest, readErr := io.ReadAll(stdout)
	if err = errors.Join(err, readErr, cmd.Wait()); err == nil && string(first)+string(rest) != "hello\n" {
		err = fmt.Errorf("printed %q", string(first)+string(rest))
	}
	return took, err
}

func sync(s *serve.Server, body string) error {
	var v struct {
		Status, Stdout string
	}
	if err := s.JSON("POST", "/api/v1/exec/sync", body, &v); err != nil {
		return err
	}
	if v.Status != "succeeded" || v.Stdout != "hello\n" {
		return fmt.Errorf("%.2000s", fmt.Sprintf("%+v", v))
	}
	return nil
}
