package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// workFolder is HOME and the current folder of a program.
const workFolder = "/work"

// ready prepares the program, in a sandbox of its own or in that of a Session.
func (r *run) ready() (*process, *executor.Failure) {
	if r.session != nil {
		return r.session.load(r)
	}
	return r.prepare()
}

// prepare installs the requirements, unpacks the Workspace and finds the program. A Failure is about the user's input. r.failed
// is an error of the backend.
func (r *run) prepare() (*process, *executor.Failure) {
	spec := r.job.Spec
	if d := r.backend.options.PrepareDelay; d > 0 && !r.pause(d) {
		return nil, nil
	}
	requirements, fail := r.install()
	if fail != nil || r.killed.Err() != nil {
		return nil, fail
	}
	r.tree = newTree()
	if fail := r.unpack(); fail != nil || r.failed != nil || r.killed.Err() != nil {
		return nil, fail
	}
	p := &process{run: r, requirements: requirements, vars: newNames()}
	if fail := p.load(); fail != nil {
		return nil, fail
	}
	r.tree.settle()
	p.python = r.version()
	p.env = environment(spec.Env)
	return p, r.connect(p)
}

// environment returns the environment of a program. own are the variables of the Spec.
func environment(own map[string]string) map[string]string {
	env := map[string]string{
		"PATH":             "/usr/bin:/bin",
		"HOME":             workFolder,
		"TMPDIR":           "/tmp",
		"LANG":             "C.UTF-8",
		"PYTHONUNBUFFERED": "1",
	}
	maps.Copy(env, own)
	if env["PYTHONUNBUFFERED"] == "" {
		delete(env, "PYTHONUNBUFFERED")
	}
	return env
}

// connect opens the standard input of p. Its errors are the backend's, not the user's.
func (r *run) connect(p *process) *executor.Failure {
	in, err := r.openStdin(r.job.Stdin)
	if err != nil {
		r.failed = fmt.Errorf("open stdin: %w", err)
		return nil
	}
	p.stdin = in
	return nil
}

// pause waits for a duration. It reports false if the job was stopped before.
func (r *run) pause(d time.Duration) bool {
	return pause(r.killed.Done(), d)
}

// pause waits for d. It reports false when stop is closed before.
func pause(stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}

// version returns the full version of the interpreter that the Spec selects.
func (r *run) version() string {
	minor := r.job.Spec.PythonVersion
	if minor == "" {
		minor = imageVersion(r.job.Spec.Image)
	}
	if minor == "" && len(r.backend.caps.PythonVersions) > 0 {
		minor = r.backend.caps.PythonVersions[0]
	}
	if minor == "" || len(r.job.Spec.Command) > 0 {
		return ""
	}
	return minor + ".0"
}

// failingCommand is a command that prints a text and fails.
var failingCommand = regexp.MustCompile(`^echo ([a-z ]+); exit ([1-9][0-9]*)$`)

// commandFailure returns the Failure of the command of PreCommands at index n.
func commandFailure(n int, command string) *executor.Failure {
	code, said := "127", ""
	if m := failingCommand.FindStringSubmatch(command); m != nil {
		code, said = m[2], ":\n"+m[1]
	}
	f := failure(executor.PhasePrepare, executor.Invalid, "pre_commands[%d] %q ended with exit code %s%s", n, command, code, said)
	f.Field = "pre_commands"
	return f
}

// install resolves Requirements and runs PreCommands ("true" works, anything else fails; see failingCommand).
// Requirements: "no-such-package…" cannot be resolved; "slow-package" takes an hour; URLs are refused.
func (r *run) install() ([]string, *executor.Failure) {
	for n, command := range r.job.Spec.PreCommands {
		r.feed.put(r.killed.Done(), executor.Progress{Phase: executor.PhasePrepare, Message: command})
		if command != "true" {
			return nil, commandFailure(n, command)
		}
	}
	if strings.HasPrefix(r.job.Spec.Image, "no-such-image") {
		return nil, failure(executor.PhasePrepare, executor.Invalid, "docker_image: %q does not exist", r.job.Spec.Image)
	}
	return r.resolve(r.job.Spec.Requirements)
}

// resolve simulates an installer.
func (r *run) resolve(text string) ([]string, *executor.Failure) {
	var resolved []string
	for line := range strings.Lines(text) {
		requirement, fail := parseRequirement(line)
		if fail != nil {
			return nil, fail
		}
		if requirement == "" {
			continue
		}
		resolved = append(resolved, requirement)
		name, _, _ := strings.Cut(requirement, "==")
		r.feed.put(r.killed.Done(), executor.Progress{Phase: executor.PhasePrepare, Message: "install " + name, Done: int64(len(resolved)), Unit: "packages"})
		if name == "slow-package" && !r.pause(time.Hour) {
			return nil, nil
		}
	}
	slices.Sort(resolved)
	return resolved, nil
}

// parseRequirement returns the resolved form of a line, or "" if the line is empty.
func parseRequirement(line string) (string, *executor.Failure) {
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	if line == "" {
		return "", nil
	}
	if strings.Contains(line, "://") { // none is fetched
		f := failure(executor.PhasePrepare, executor.Invalid, "requirement %q has no public address", line)
		f.Field = "requirements_txt"
		return "", f
	}
	name, version, pinned := strings.Cut(line, "==")
	name = strings.TrimSpace(name)
	if strings.ContainsAny(name, " =<>!\"'\\") || name == "" || strings.HasPrefix(name, "no-such-package") {
		return "", failure(executor.PhasePrepare, executor.Invalid, "requirement %q cannot be resolved", line)
	}
	if !pinned {
		version = "1.0.0"
	}
	return name + "==" + strings.TrimSpace(version), nil
}

// unpack reads the Workspace. When the job is stopped, unpack closes the reader.
func (r *run) unpack() *executor.Failure {
	if r.job.Workspace == nil {
		return nil
	}
	reader, err := r.job.Workspace.Open()
	if err != nil {
		r.failed = fmt.Errorf("open workspace: %w", err)
		return nil
	}
	closeOnce := sync.OnceFunc(func() { _ = reader.Close() }) // it was only read
	defer closeOnce()
	defer context.AfterFunc(r.killed, closeOnce)()
	source := &watched{Reader: reader}
	err = r.tree.unpack(source, r.diskLimit())
	switch {
	case r.killed.Err() != nil:
		return nil // the reader was closed under it
	case source.err != nil:
		r.failed = fmt.Errorf("read workspace: %w", source.err)
	case err != nil:
		return failure(executor.PhasePrepare, executor.Invalid, "%s", err)
	}
	return nil
}

func (r *run) diskLimit() int64 {
	if limit := r.limits().DiskBytes; r.backend.caps.Disk && limit > 0 {
		return limit
	}
	return -1
}

// watched keeps the error of its reader, which tells a broken stream from a broken tar.
type watched struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// load finds the program: Command, Code or an entrypoint of the Workspace.
func (p *process) load() *executor.Failure {
	spec, tree := p.run.job.Spec, p.run.tree
	p.args = spec.Args
	switch {
	case len(spec.Command) > 0:
		return p.command(spec.Command)
	case spec.Code != "":
		if tree.files["main.py"] != nil {
			return failure(executor.PhasePrepare, executor.Invalid, "the workspace has a main.py beside code")
		}
		if err := tree.put("main.py", &file{data: []byte(spec.Code), mode: 0o644}, p.run.diskLimit()); err != nil {
			return failure(executor.PhasePrepare, executor.Exhausted, "%s", err)
		}
		p.argv0 = "main.py"
	case spec.Entrypoint != "":
		name, err := inside(spec.Entrypoint, ".")
		if err != nil || tree.get(name) == nil {
			return failure(executor.PhasePrepare, executor.Invalid, "entrypoint %q is not in the workspace", spec.Entrypoint)
		}
		p.argv0 = name
	default:
		if p.argv0, p.chosen = tree.entrypoint(); p.argv0 == "" {
			return failure(executor.PhasePrepare, executor.Invalid, "the workspace has no entrypoint: no main.py, no __main__.py, no .py file")
		}
	}
	p.text = string(tree.get(p.argv0).data)
	return nil
}

// command resolves an argv: "fake -c TEXT", "fake FILE", or an executable file of the Workspace that begins with "#!".
func (p *process) command(argv []string) *executor.Failure {
	p.argv0, p.args = argv[0], append(slices.Clone(argv[1:]), p.args...)
	switch {
	case argv[0] == "fake" && len(p.args) >= 2 && p.args[0] == "-c":
		p.argv0, p.text, p.args = "-c", p.args[1], p.args[2:]
	case argv[0] == "fake" && len(p.args) >= 1:
		f := p.run.tree.get(p.args[0])
		if f == nil {
			p.text = fmt.Sprintf("print-err %q\nexit 2", "fake: no file "+p.args[0])
			return nil
		}
		p.argv0, p.text, p.args = p.args[0], string(f.data), p.args[1:]
	case strings.Contains(argv[0], "/"):
		name := strings.TrimPrefix(argv[0], workFolder+"/")
		f := p.run.tree.get(name)
		if f == nil {
			return failure(executor.PhaseStart, executor.NotFound, "%q: no such file", argv[0])
		}
		if f.mode&0o111 == 0 || !strings.HasPrefix(string(f.data), "#!") {
			return failure(executor.PhaseStart, executor.Invalid, "%q cannot be executed", argv[0])
		}
		p.text = string(f.data)
	default:
		return failure(executor.PhaseStart, executor.NotFound, "%q: not found on PATH", argv[0])
	}
	return nil
}
