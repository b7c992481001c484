package cmd

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/executor"
)

// program holds the flags that say what to run; run and submit share them.
type program struct {
	files        []string
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
	flags        *pflag.FlagSet
	// args before "--", rest behind it.
	args, rest []string
}

func (p *program) register(f *pflag.FlagSet) {
	p.flags = f
	f.StringArrayVar(&p.files, "file", nil, "a `PATH` to send (repeat it); a relative path is kept")
	f.StringVar(&p.entrypoint, "entrypoint", "", "`FILE` to run (default: main.py, __main__.py, the first .py)")
	f.StringVar(&p.requirements, "requirements", "", "requirements `FILE`; wins over PEP 723 and requirements.txt of the input")
	f.StringVar(&p.python, "python", "", "Python minor `VERSION`, such as 3.12")
	f.StringArrayVar(&p.env, "env", nil, "set a variable of the program, `K=V` (repeat it); K alone takes ours")
	f.StringVar(&p.stdin, "stdin", "", "`FILE` that the program reads as its standard input; - = ours")
	f.StringVar(&p.output, "output", "", "save artifacts in `DIR`: what --artifact names, else all new and changed files that are not hidden")
	f.StringArrayVar(&p.artifacts, "artifact", nil, "`GLOB` of files to keep, with ** (repeat it)")
	f.BoolVar(&p.includeAll, "include-all", false, "send ignored files, version control and virtual environments too")
	f.StringVar(&p.backend, "backend", "", "`NAME` of the backend")
	f.BoolVar(&p.command, "command", false, "what follows -- is the command itself; the input is only its files")
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

var minorVersion = regexp.MustCompile(`^3\.[0-9]{1,2}$`)

// spec builds what is sent. Fields that the user did not set stay zero, and a zero field is not sent.
func (p *program) spec(g *global) (executor.Spec, error) {
	s := executor.Spec{
		Entrypoint: p.entrypoint, PythonVersion: p.python, Image: g.image, Backend: p.backend, Outputs: p.artifacts,
		OutputsChanged: p.output != "" && len(p.artifacts) == 0,
	}
	if p.command {
		if len(p.rest) == 0 {
			return s, fmt.Errorf("--command needs a command behind --")
		}
		if p.entrypoint != "" {
			return s, fmt.Errorf("--command and --entrypoint contradict each other")
		}
		s.Command = p.rest
	} else {
		s.Args = p.rest
	}
	if p.flags.Changed("python") && !minorVersion.MatchString(p.python) {
		return s, fmt.Errorf("--python must be a minor version such as 3.12 (got %q)", p.python)
	}
	if g.given("network") {
		s.Network = executor.NetworkOff
		if g.network {
			s.Network = executor.NetworkOn
		}
	}
	for _, empty := range []string{"entrypoint", "requirements", "stdin", "output", "backend"} {
		if p.flags.Changed(empty) && p.flags.Lookup(empty).Value.String() == "" {
			return s, fmt.Errorf("--%s must not be empty", empty)
		}
	}
	if g.given("image") && g.image == "" {
		return s, fmt.Errorf("--image must not be empty")
	}
	var err error
	if s.Limits, err = g.limits(); err != nil {
		return s, err
	}
	s.Env, err = environment(p.env)
	return s, err
}

func (g *global) limits() (executor.Limits, error) {
	var l executor.Limits
	if g.given("timeout") {
		const most = float64(math.MaxInt64 / int64(time.Second))
		switch {
		case g.timeout == 0:
			l.Timeout = executor.TimeoutMaximum
		case g.timeout > 0 && g.timeout < most:
			l.Timeout = max(1, time.Duration(g.timeout*float64(time.Second)))
		default:
			return l, fmt.Errorf("--timeout must be >= 0 seconds (got %v)", g.timeout)
		}
	}
	for _, limit := range []struct {
		flag  string
		value int64
		shift uint
		to    *int64
	}{{"memory", g.memory, 20, &l.MemoryBytes}, {"disk", g.disk, 20, &l.DiskBytes}, {"cpu", g.cpu, 0, &l.CPUShares}} {
		if !g.given(limit.flag) {
			continue
		}
		if limit.value <= 0 || limit.value > math.MaxInt64>>limit.shift {
			return l, fmt.Errorf("--%s must be > 0 (got %d)", limit.flag, limit.value)
		}
		*limit.to = limit.value << limit.shift
	}
	return l, nil
}

// environment reads K=V; K alone takes the value of our own variable, and is left out where there is none.
func environment(entries []string) (map[string]string, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, entry := range entries {
		name, value, has := strings.Cut(entry, "=")
		if name == "" || strings.ContainsRune(entry, 0) {
			return nil, fmt.Errorf("--env must be K=V (got %q)", entry)
		}
		if !has {
			if value, has = os.LookupEnv(name); !has {
				continue
			}
		}
		env[name] = value
	}
	return env, nil
}
