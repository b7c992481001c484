package cmd

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// program holds the flags that say what to run; run and submit share them.
type program struct {
	files        []string
	code         string
	language     string
	entrypoint   string
	requirements string
	python       string
	env          []string
	stdin        string
	output       string
	artifacts    []string
	includeAll   bool
	backend      string
	command      bool
	grace        seconds
	flags        *pflag.FlagSet
	// args are the arguments before "--", rest those after it.
	args, rest []string
}

func (p *program) register(f *pflag.FlagSet) {
	p.flags = f
	f.StringArrayVar(&p.files, "file", nil, "a `PATH` to send (repeat it); a relative path is kept")
	f.StringVarP(&p.code, "code", "c", "", "the `CODE` to run")
	f.StringVar(&p.language, "language", "", "`LANGUAGE` of the program: python, javascript or shell (default: by the suffix of its file)")
	f.StringVar(&p.entrypoint, "entrypoint", "", "`FILE` to run (default: main.py, __main__.py, the first .py)")
	f.StringVar(&p.requirements, "requirements", "", "requirements `FILE`; wins over PEP 723 and requirements.txt of the input")
	f.StringVar(&p.python, "python", "", "Python minor `VERSION`, such as 3.12")
	f.StringArrayVar(&p.env, "env", nil, "set a variable of the program, `K=V` (repeat it); K alone passes on this shell's value")
	f.StringVar(&p.stdin, "stdin", "", "`FILE` that the program reads as its standard input; - = standard input of this command")
	f.StringVar(&p.output, "output", "", "save artifacts in `DIR`: what --artifact names, else all new and changed files that are not hidden")
	f.StringArrayVar(&p.artifacts, "artifact", nil, "`GLOB` of files to keep, with ** (repeat it)")
	f.BoolVar(&p.includeAll, "include-all", false, "send ignored files, version control and virtual environments too")
	f.StringVar(&p.backend, "backend", "", "`NAME` of the backend")
	f.Var(&p.grace, "kill-grace", "`N` seconds, or 10s, that the program has to end after Ctrl-C or its timeout, before it is killed")
	f.BoolVar(&p.command, "command", false, "the arguments after -- are the command; the input has only its files")
}

// take splits the arguments at "--"; dash is cobra's ArgsLenAtDash.
func (p *program) take(args []string, dash int) {
	if dash < 0 {
		dash = len(args)
	}
	p.args = args[:dash]
	if dash < len(args) {
		p.rest = args[dash:]
	}
}

// spec makes the Spec of the flags. Fields that the user has not set stay zero, and a zero field is not sent.
func (p *program) spec(g *global) (executor.Spec, error) {
	s := executor.Spec{
		Entrypoint: p.entrypoint, PythonVersion: p.python, Image: g.image, Backend: p.backend, Network: g.networkMode(),
		Outputs: p.artifacts, OutputsChanged: p.output != "" && len(p.artifacts) == 0,
	}
	if p.command {
		if len(p.rest) == 0 {
			return s, fmt.Errorf("--command: must be followed by -- and a command")
		}
		if p.entrypoint != "" {
			return s, fmt.Errorf("--entrypoint: must not be given with --command")
		}
		s.Command = p.rest
	} else {
		s.Args = p.rest
	}
	if err := checkLanguage(p.language); err != nil {
		return s, err
	}
	if err := checkPython(p.flags, p.python); err != nil {
		return s, err
	}
	if err := errors.Join(notEmpty(p.flags, "entrypoint", "requirements", "stdin", "output", "backend"), notEmpty(g.flags, "image")); err != nil {
		return s, err
	}
	var err error
	if s.Limits, err = g.limits(); err != nil {
		return s, err
	}
	if p.flags.Changed("kill-grace") {
		if !(p.grace > 0 && p.grace < 1<<32) { // NaN too
			return s, fmt.Errorf("--kill-grace: must be > 0 seconds (got %v)", p.grace)
		}
		s.Limits.KillGrace = max(1, time.Duration(float64(p.grace)*float64(time.Second)))
	}
	s.Env, err = g.environment(p.env)
	return s, err
}

func checkLanguage(language string) error {
	switch executor.Language(language) {
	case executor.LanguageDefault, executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell:
		return nil
	}
	return fmt.Errorf("--language: must be python, javascript or shell (got %q)", language)
}

func checkPython(f *pflag.FlagSet, version string) error {
	if f.Changed("python") && !backend.IsMinorVersion(version) {
		return fmt.Errorf("--python: must be a minor version of Python 3, such as 3.12 (got %q)", version)
	}
	return nil
}

// networkMode returns the mode of --network.
func (g *global) networkMode() executor.Network {
	switch {
	case !g.given("network"):
		return executor.NetworkDefault
	case g.network:
		return executor.NetworkOn
	}
	return executor.NetworkOff
}

// requirementsText returns the content of the file of --requirements; "" without a file.
func requirementsText(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--requirements: %w", err)
	}
	text, err := detect.Text(raw)
	if err != nil {
		return "", fmt.Errorf("--requirements: %s: %w", file, err)
	}
	return text, nil
}

func (g *global) limits() (executor.Limits, error) {
	var l executor.Limits
	if g.given("timeout") {
		n := float64(g.timeout)
		const limit = float64(math.MaxInt64 / int64(time.Second)) // beyond it is the longest time: the engine names its maximum
		switch {
		case n == 0:
			l.Timeout = executor.TimeoutMaximum
		case n > 0 && n < limit:
			l.Timeout = max(1, time.Duration(n*float64(time.Second)))
		case n >= limit:
			l.Timeout = math.MaxInt64
		default:
			return l, fmt.Errorf("--timeout: must be >= 0 seconds (got %v)", n)
		}
	}
	if g.given("cpu-seconds") {
		if !(g.cpuSeconds > 0) { // NaN is wrong, too
			return l, fmt.Errorf("--cpu-seconds: must be > 0 seconds (got %v)", g.cpuSeconds)
		}
		l.CPUTime = time.Duration(max(1, min(float64(g.cpuSeconds)*float64(time.Second), math.MaxInt64/2))) // likewise
	}
	for _, limit := range []struct {
		flag  string
		value int64
		shift uint
		to    *int64
	}{{"memory", int64(g.memory), 20, &l.MemoryBytes}, {"disk", int64(g.disk), 20, &l.DiskBytes}, {"cpu", g.cpu, 0, &l.CPUShares}} {
		if !g.given(limit.flag) && (limit.flag != "cpu" || !g.given("cpus")) {
			continue
		}
		if limit.value <= 0 {
			return l, fmt.Errorf("--%s: must be > 0 (got %d)", limit.flag, limit.value)
		}
		*limit.to = math.MaxInt64 // likewise
		if limit.value <= math.MaxInt64>>limit.shift {
			*limit.to = limit.value << limit.shift
		}
	}
	return l, nil
}

// environment parses K=V entries. K alone takes the value of this process's variable. If there is none, it is left out, and a note says so.
func (g *global) environment(entries []string) (map[string]string, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, entry := range entries {
		name, value, has := strings.Cut(entry, "=")
		if name == "" || strings.ContainsRune(entry, 0) {
			return nil, fmt.Errorf("--env: must be K=V (got %q)", entry)
		}
		if !has {
			if value, has = os.LookupEnv(name); !has {
				g.note("--env: %s is not set here, and is left out", name)
				continue
			}
		}
		env[name] = value
	}
	return env, nil
}
