package engine

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// The bounds on what a Spec may hold; its files go into the Workspace.
const (
	maxCode             = 16 << 20
	maxRequirements     = 1 << 20
	maxArgument         = 128<<10 - 1 // the kernel's own for one string of argv or environ
	maxArguments        = 1 << 20     // of all together; beyond it the kernel refuses
	maxCount            = 10000
	maxPatterns         = 1000
	maxPath             = 4096
	maxImage            = 512
	maxKey              = 255
	leastSampleInterval = 10 * time.Millisecond
)

var (
	environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	minorVersion    = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`)
	imageForm       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)
	// pythonImage is an image that names an interpreter: python:3.12, docker.io/library/python:3.12.1-slim@sha256:….
	pythonImage = regexp.MustCompile(`^(?:docker\.io/)?(?:library/)?python:([0-9]+\.[0-9]+)(?:[.@-].*)?$`)
)

// problems collects every bad field of a request.
type problems []executor.FieldError

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, executor.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// err returns what was collected as one Error of a Submit, or nil.
func (p problems) err(code executor.Code) error { return p.errOf("submit", code) }

func (p problems) errOf(op string, code executor.Code) error {
	if len(p) == 0 {
		return nil
	}
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Field + ": " + problem.Message
	}
	return &executor.Error{Code: code, Op: op, Message: strings.Join(lines, "; "), Fields: p}
}

// validate records every field of s that is wrong whatever the backend.
func validate(s executor.Spec, in executor.Input, p *problems) {
	validateProgram(s, in, p)
	p.text("code", s.Code, maxCode)
	p.text("requirements_txt", s.Requirements, maxRequirements)
	p.list("command", s.Command, maxCount, maxArgument)
	p.list("args", s.Args, maxCount, maxArgument)
	p.list("pre_commands", s.PreCommands, maxPatterns, maxArgument)
	p.list("outputs", s.Outputs, maxPatterns, maxPath)
	if len(s.Command) > 0 && s.Command[0] == "" {
		p.add("command[0]", "must not be empty")
	}
	for i, glob := range s.Outputs {
		if problem := badPath(glob); problem != "" {
			p.add(fmt.Sprintf("outputs[%d]", i), "%s", problem)
		} else if _, err := path.Match(glob, ""); err != nil {
			p.add(fmt.Sprintf("outputs[%d]", i), "is not a glob (got %q)", glob)
		}
	}
	validateEnvironment(s.Env, p)
	validateWords(s, p)
	p.text("idempotency_key", s.IdempotencyKey, maxKey)
	p.text("host_directory", s.HostDirectory, maxPath)
	if s.HostDirectory != "" && (!path.IsAbs(s.HostDirectory) || path.Clean(s.HostDirectory) != s.HostDirectory) {
		p.add("host_directory", "must be an absolute, clean path (got %q)", s.HostDirectory)
	}
	p.text("script", s.Script, maxPath)
	p.text("session", s.Session, maxKey)
	p.text("backend", s.Backend, maxKey)
	if s.SampleInterval != 0 && s.SampleInterval < leastSampleInterval {
		p.add("sample_interval_seconds", "must be at least %s (got %s)", number(leastSampleInterval.Seconds()), number(s.SampleInterval.Seconds()))
	}
	if s.FilesChanged && s.Session == "" {
		p.add("files_changed", "only in a session")
	}
	if s.Interpreter == executor.InterpreterSystem && s.Requirements != "" {
		p.add("requirements_txt", "the system interpreter takes no requirements")
	}
}

// validateProgram checks that exactly one thing says what the program is.
func validateProgram(s executor.Spec, in executor.Input, p *problems) {
	files := in.Workspace != nil || s.HostDirectory != ""
	switch {
	case s.Script != "":
		if s.Code != "" || len(s.Command) > 0 || s.Entrypoint != "" || in.Workspace != nil {
			p.add("script", "a script takes args and stdin only")
		}
		return
	case s.Code != "" && len(s.Command) > 0:
		p.add("command", "code and command exclude each other")
	case s.Code == "" && len(s.Command) == 0 && !files:
		if s.Entrypoint != "" {
			p.add("entrypoint", "there are no files it could be one of")
		} else {
			p.add("code", "one of code, command or files must say what to run")
		}
	}
	if s.Entrypoint == "" {
		return
	}
	if problem := badPath(s.Entrypoint); problem != "" {
		p.add("entrypoint", "%s", problem)
	} else if problem := detect.NotAProgram(s.Entrypoint); problem != "" {
		p.add("entrypoint", "%s (got %q)", problem, s.Entrypoint)
	}
	p.text("entrypoint", s.Entrypoint, maxPath)
	switch {
	case s.Code != "" && s.Entrypoint != "main.py":
		p.add("entrypoint", "code runs as main.py (got %q)", s.Entrypoint)
	case len(s.Command) > 0:
		p.add("entrypoint", "command and entrypoint exclude each other")
	}
}

func badPath(name string) string {
	switch {
	case name == "" || name == ".":
		return "must name a file"
	case path.IsAbs(name), path.Clean(name) != name, name == "..", strings.HasPrefix(name, "../"):
		return fmt.Sprintf("must be a relative, clean path inside the work folder (got %q)", name)
	}
	return ""
}

func validateEnvironment(env map[string]string, p *problems) {
	if len(env) > maxCount {
		p.add("env", "must have at most %d entries (got %d)", maxCount, len(env))
		return
	}
	total := 0
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !environmentName.MatchString(name) {
			p.add("env", "%q is no name for a variable", name)
			continue
		}
		p.text("env."+name, env[name], maxArgument-len(name)-1)
		total += len(name) + len(env[name]) + 2
	}
	if total > maxArguments {
		p.add("env", "must be at most %d bytes in all (got %d)", maxArguments, total)
	}
}

func validateWords(s executor.Spec, p *problems) {
	word(p, "language", s.Language, executor.LanguageDefault, executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell)
	word(p, "interpreter", s.Interpreter, executor.InterpreterDefault, executor.InterpreterEnvironment, executor.InterpreterSystem)
	word(p, "config.network_disabled", s.Network, executor.NetworkDefault, executor.NetworkOff, executor.NetworkOn)
	if s.PythonVersion != "" && !minorVersion.MatchString(s.PythonVersion) {
		p.add("python_version", `must be a minor version like "3.12" (got %q)`, s.PythonVersion)
	}
	if s.Image == "" {
		return
	}
	if len(s.Image) > maxImage || !imageForm.MatchString(s.Image) {
		p.add("docker_image", "is not the name of an image (got %q)", clip(s.Image, 100))
	} else if version := imageVersion(s.Image); version != "" && s.PythonVersion != "" && version != s.PythonVersion {
		p.add("docker_image", "names Python %s, python_version %s", version, s.PythonVersion)
	}
}

// imageVersion returns the minor version that an image of the form python:X.Y… names; "" for any other.
func imageVersion(image string) string {
	if m := pythonImage.FindStringSubmatch(image); m != nil {
		return m[1]
	}
	return ""
}

func word[T ~string](p *problems, field string, got T, known ...T) {
	if slices.Contains(known, got) {
		return
	}
	names := make([]string, 0, len(known))
	for _, k := range known {
		if k != "" {
			names = append(names, string(k))
		}
	}
	p.add(field, "must be one of %s (got %q)", strings.Join(names, ", "), clip(string(got), 100))
}

// text records a problem if value is too long or cannot be passed on.
func (p *problems) text(field, value string, most int) {
	switch {
	case len(value) > most:
		p.add(field, "must be at most %d bytes (got %d)", most, len(value))
	case strings.ContainsRune(value, 0):
		p.add(field, "must not contain a NUL byte")
	case !utf8.ValidString(value):
		p.add(field, "must be valid UTF-8")
	}
}

func (p *problems) list(field string, values []string, most, each int) {
	if len(values) > most {
		p.add(field, "must have at most %d entries (got %d)", most, len(values))
		return
	}
	total := 0
	for i, value := range values {
		p.text(fmt.Sprintf("%s[%d]", field, i), value, each)
		total += len(value) + 1
	}
	if total > maxArguments {
		p.add(field, "must be at most %d bytes in all (got %d)", maxArguments, total)
	}
}

// clip shortens text to about most bytes, at a rune's boundary.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
