package engine

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// The bounds on a Spec, without the files of its Workspace.
const (
	maxCode           = 16 << 20
	maxRequirements   = 1 << 20
	maxArgument       = 128<<10 - 1 // the bound of the kernel for one string of argv or environ
	maxArguments      = 1 << 20     // of all together; the kernel refuses more
	maxCount          = 10000
	maxPatterns       = 1000
	maxPath           = 4096
	maxImage          = 512
	maxKey            = 255
	minSampleInterval = 10 * time.Millisecond
)

var (
	environmentName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
	minorVersion    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`) })
	imageForm       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`) })
	// pythonImage is an image that names an interpreter: python:3.12, docker.io/library/python:3.12.1-slim@sha256:….
	pythonImage = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:docker\.io/)?(?:library/)?python:([0-9]+\.[0-9]+)(?:[.@-].*)?$`)
	})
)

// validate records the fields of s that are wrong for every backend.
func validate(s executor.Spec, in executor.Input, p *executor.Problems) {
	validateProgram(s, in, p)
	checkText(p, "code", s.Code, maxCode)
	checkText(p, "requirements_txt", s.Requirements, maxRequirements)
	checkList(p, "command", s.Command, maxCount, maxArgument)
	checkList(p, "args", s.Args, maxCount, maxArgument)
	checkList(p, "pre_commands", s.PreCommands, maxPatterns, maxArgument)
	checkList(p, "outputs", s.Outputs, maxPatterns, maxPath)
	if len(s.Command) > 0 && s.Command[0] == "" {
		p.Add("command[0]", "must not be empty")
	}
	for i, glob := range s.Outputs {
		if problem := badPath(glob); problem != "" {
			p.Add(fmt.Sprintf("outputs[%d]", i), "%s", problem)
		} else if _, err := path.Match(glob, ""); err != nil {
			p.Add(fmt.Sprintf("outputs[%d]", i), "must be a glob (got %q)", glob)
		}
	}
	validateEnvironment(s.Env, p)
	validateWords(s, p)
	checkText(p, "idempotency_key", s.IdempotencyKey, maxKey)
	checkText(p, "host_directory", s.HostDirectory, maxPath)
	if s.HostDirectory != "" && (!path.IsAbs(s.HostDirectory) || path.Clean(s.HostDirectory) != s.HostDirectory) {
		p.Add("host_directory", "must be an absolute, clean path (got %q)", s.HostDirectory)
	}
	checkText(p, "script", s.Script, maxPath)
	checkText(p, "session", s.Session, maxKey)
	checkText(p, "backend", s.Backend, maxKey)
	if s.SampleInterval != 0 && s.SampleInterval < minSampleInterval {
		p.Add("sample_interval_seconds", "must be at least %s (got %s)", number(minSampleInterval.Seconds()), number(s.SampleInterval.Seconds()))
	}
	if s.FilesChanged && s.Session == "" {
		p.Add("files_changed", "must be set in a session only")
	}
	if s.Interpreter == executor.InterpreterSystem && s.Requirements != "" {
		p.Add("requirements_txt", "must not be given with the system interpreter")
	}
}

// validateProgram checks that exactly one field says what the program is.
func validateProgram(s executor.Spec, in executor.Input, p *executor.Problems) {
	files := in.Workspace != nil || s.HostDirectory != ""
	switch {
	case s.Script != "":
		if s.Code != "" || len(s.Command) > 0 || s.Entrypoint != "" || in.Workspace != nil {
			p.Add("script", "must not be given with code, command, entrypoint or files")
		}
		return
	case s.Code != "" && len(s.Command) > 0:
		p.Add("command", "must not be given with code")
	case s.Code == "" && len(s.Command) == 0 && !files:
		if s.Entrypoint != "" {
			p.Add("entrypoint", "must name one of the files, and there are none")
		} else {
			p.Add("code", "must be given, unless command or files are")
		}
	}
	if s.Entrypoint == "" {
		return
	}
	if problem := badPath(s.Entrypoint); problem != "" {
		p.Add("entrypoint", "%s", problem)
	} else if problem := detect.NotAProgram(s.Entrypoint); problem != "" {
		p.Add("entrypoint", "%s (got %q)", problem, s.Entrypoint)
	}
	checkText(p, "entrypoint", s.Entrypoint, maxPath)
	switch {
	case s.Code != "" && s.Entrypoint != "main.py":
		p.Add("entrypoint", "must be main.py with code (got %q)", s.Entrypoint)
	case len(s.Command) > 0:
		p.Add("entrypoint", "must not be given with command")
	}
}

// badPath says what is wrong with a path in the work folder; "" if nothing is.
func badPath(name string) string {
	switch {
	case name == "" || name == ".":
		return "must name a file"
	case path.IsAbs(name), path.Clean(name) != name, name == "..", strings.HasPrefix(name, "../"):
		return fmt.Sprintf("must be a relative, clean path inside the work folder (got %q)", name)
	}
	return ""
}

func validateEnvironment(env map[string]string, p *executor.Problems) {
	if len(env) > maxCount {
		p.Add("env", "must have at most %d entries (got %d)", maxCount, len(env))
		return
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !environmentName().MatchString(name) {
			p.Add("env", "must have names of letters, digits and _ (got %q)", name)
			continue
		}
		checkText(p, "env."+name, env[name], maxArgument-len(name)-1)
		total += len(name) + len(env[name]) + 2
	}
	if total > maxArguments {
		p.Add("env", "must be at most %d bytes in all (got %d)", maxArguments, total)
	}
}

func validateWords(s executor.Spec, p *executor.Problems) {
	word(p, "language", s.Language, executor.LanguageDefault, executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell)
	word(p, "interpreter", s.Interpreter, executor.InterpreterDefault, executor.InterpreterEnvironment, executor.InterpreterSystem)
	word(p, "config.network_disabled", s.Network, executor.NetworkDefault, executor.NetworkOff, executor.NetworkOn)
	if s.PythonVersion != "" && !minorVersion().MatchString(s.PythonVersion) {
		p.Add("python_version", `must be a minor version like "3.12" (got %q)`, s.PythonVersion)
	}
	if s.Image == "" {
		return
	}
	if len(s.Image) > maxImage || !imageForm().MatchString(s.Image) {
		p.Add("docker_image", "must be the name of an image (got %q)", clip(s.Image, 100))
	} else if version := imageVersion(s.Image); version != "" && s.PythonVersion != "" && version != s.PythonVersion {
		p.Add("docker_image", "names Python %s, python_version %s", version, s.PythonVersion)
	}
}

// imageVersion returns the minor version that an image of the form python:X.Y… names; "" for any other.
func imageVersion(image string) string {
	if m := pythonImage().FindStringSubmatch(image); m != nil {
		return m[1]
	}
	return ""
}

// unenforced returns why a backend does not enforce a limit, as its Warnings say it, for the end of a message. It is "" for a field that is no limit.
func unenforced(field string, info executor.Info) string {
	limit, ok := strings.CutPrefix(field, "config.")
	if !ok {
		return ""
	}
	for _, w := range info.Warnings {
		if strings.HasPrefix(w, limit+" is not enforced") {
			return ": " + w
		}
	}
	return " on this host (python-executor doctor says why)"
}

// pythonsOf names the Python versions of a backend for a message.
func pythonsOf(c executor.Capabilities) string {
	here, more := strings.Join(c.PythonVersions, ", "), strings.Join(c.PythonDownloads, ", ")
	switch {
	case more == "":
		return here
	case here == "":
		return more + " (installed when it is asked for)"
	default:
		return here + " (at hand), or " + more + " (installed when it is asked for)"
	}
}

// capable records the fields of s that a backend with this Info cannot do or enforce as missing, and a Python version that it does not have,
// or the image of one, as invalid.
func capable(s executor.Spec, info executor.Info, invalid, missing *executor.Problems) {
	c := info.Capabilities
	for _, field := range c.Unsupported(s) {
		missing.Add(field, "not available on backend %s%s", info.Name, unenforced(field, info))
	}
	has := func(version string) bool { return slices.Contains(c.Pythons(), version) }
	versions := pythonsOf(c)
	switch {
	case s.PythonVersion == "" || has(s.PythonVersion) || c.Images && len(c.PythonVersions) == 0:
	case len(c.Pythons()) == 0:
		invalid.Add("python_version", "must not be given: backend %s has no Python", info.Name)
	default:
		invalid.Add("python_version", "must be one of %s on backend %s (got %q)", versions, info.Name, s.PythonVersion)
	}
	if version := imageVersion(s.Image); s.Image != "" && !c.Images && !has(version) && !slices.Contains(info.Images, s.Image) {
		p := missing
		if version != "" && len(c.Pythons()) > 0 {
			p = invalid // another tag would do, as another python_version would
		}
		p.Add("docker_image", "must be python:VERSION on backend %s, with a version of %s (got %q)", info.Name, versions, s.Image)
	}
}

func word[T ~string](p *executor.Problems, field string, got T, known ...T) {
	if slices.Contains(known, got) {
		return
	}
	names := make([]string, 0, len(known))
	for _, k := range known {
		if k != "" {
			names = append(names, string(k))
		}
	}
	p.Add(field, "must be one of %s (got %q)", strings.Join(names, ", "), clip(string(got), 100))
}

// checkText records a problem if value is longer than limit bytes, or is no text that the system can pass on.
func checkText(p *executor.Problems, field, value string, limit int) {
	switch {
	case len(value) > limit:
		p.Add(field, "must be at most %d bytes (got %d)", limit, len(value))
	case strings.ContainsRune(value, 0):
		p.Add(field, "must not contain a NUL byte")
	case !utf8.ValidString(value):
		p.Add(field, "must be valid UTF-8")
	}
}

func checkList(p *executor.Problems, field string, values []string, count, each int) {
	if len(values) > count {
		p.Add(field, "must have at most %d entries (got %d)", count, len(values))
		return
	}
	total := 0
	for i, value := range values {
		checkText(p, fmt.Sprintf("%s[%d]", field, i), value, each)
		total += len(value) + 1
	}
	if total > maxArguments {
		p.Add(field, "must be at most %d bytes in all (got %d)", maxArguments, total)
	}
}

// clip shortens text to at most n bytes, at the boundary of a rune, and marks the cut with an ellipsis.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// clipMiddle shortens text to at most n bytes and an ellipsis. It keeps the beginning and mostly the end, where tools say what is wrong.
func clipMiddle(text string, n int) string {
	if len(text) <= n {
		return text
	}
	head := clip(text, n/16)
	from := len(text) - (n - n/16)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return head + text[from:]
}
