package cmd

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/executor"
)

// parse runs the root command with `run` or `submit` replaced by what remembers its options.
func parse(t *testing.T, args ...string) (*runOptions, *global, error) {
	t.Helper()
	g := &global{IO: IO{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}}
	root := &cobra.Command{Use: "python-executor", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(*cobra.Command, []string) error { return g.settle() }}
	g.register(root.PersistentFlags())
	var got *runOptions
	keep := func(_ context.Context, o *runOptions) error { got = o; return nil }
	root.AddCommand(newRun(g, keep), newSubmit(g, keep))
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return got, g, err
}

func TestFlagsBecomeASpec(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want executor.Spec
	}{
		{"nothing is sent that was not set", []string{"run", "x.py"}, executor.Spec{}},
		{"every limit", []string{"run", "--timeout", "7200", "--cpu-seconds", "1.5", "--memory", "16384", "--disk", "5", "--cpu", "512"},
			executor.Spec{Limits: executor.Limits{Timeout: 2 * time.Hour, CPUTime: 1500 * time.Millisecond, MemoryBytes: 16 << 30, DiskBytes: 5 << 20, CPUShares: 512}}},
		{"the longest timeout", []string{"run", "--timeout", "0"}, executor.Spec{Limits: executor.Limits{Timeout: executor.TimeoutMaximum}}},
		{"half a second", []string{"run", "--timeout=0.5"}, executor.Spec{Limits: executor.Limits{Timeout: time.Second / 2}}},
		{"network", []string{"run", "--network"}, executor.Spec{Network: executor.NetworkOn}},
		{"no network, insisted on", []string{"run", "--network=false"}, executor.Spec{Network: executor.NetworkOff}},
		{"image, python, backend", []string{"submit", "--image", "python:3.12", "--python", "3.12", "--backend", "uv"},
			executor.Spec{Image: "python:3.12", PythonVersion: "3.12", Backend: "uv"}},
		{"arguments behind the dashes", []string{"run", "x", "--", "-v", "--network", "a b"}, executor.Spec{Args: []string{"-v", "--network", "a b"}}},
		{"a command", []string{"run", "--command", "--", "echo", "-n"}, executor.Spec{Command: []string{"echo", "-n"}}},
		{"flags behind the input", []string{"run", "./p/", "--entrypoint", "train.py"}, executor.Spec{Entrypoint: "train.py"}},
		{"the environment", []string{"run", "--env", "A=1,2", "--env", "B=x=y", "--env", "C="}, executor.Spec{Env: map[string]string{"A": "1,2", "B": "x=y", "C": ""}}},
		{"all changed files", []string{"run", "--output", "o"}, executor.Spec{OutputsChanged: true}},
		{"named files", []string{"run", "--output", "o", "--artifact", "**/*.png", "--artifact", "a,b"}, executor.Spec{Outputs: []string{"**/*.png", "a,b"}}},
		{"global flags before the command", []string{"--memory", "1", "run"}, executor.Spec{Limits: executor.Limits{MemoryBytes: 1 << 20}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, g, err := parse(t, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := o.spec(g); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v\n got %+v\nwant %+v", err, got, test.want)
			}
		})
	}
}

func TestFlagsThatAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"--timeout: must be >= 0 seconds (got -1)":        {"run", "--timeout", "-1"},
		"--timeout: must be":                              {"run", "--timeout", "NaN"},
		"--cpu-seconds: must be > 0 seconds (got 0)":      {"run", "--cpu-seconds", "0"},
		"--cpu-seconds: must be > 0 seconds (got NaN)":    {"run", "--cpu-seconds", "NaN"},
		"--memory: must be > 0 (got 0)":                   {"run", "--memory", "0"},
		"--disk: must be > 0":                             {"run", "--disk", "-5"},
		"--cpu: must be > 0":                              {"run", "--cpu", "0"},
		`--env: must be K=V (got "=x")`:                   {"run", "--env", "=x"},
		"--python: must be a minor version":               {"run", "--python", "3.12.1"},
		`such as 3.12 (got "3.07")`:                       {"run", "--python", "3.07"},
		"--entrypoint: must not be empty":                 {"run", "--entrypoint", ""},
		"--command: must be followed by -- and a command": {"run", "--command"},
		"--entrypoint: must not be given with --command":  {"run", "--command", "--entrypoint", "x", "--", "a"},
		"--server: must begin with http:// or https://":   {"run", "--server", "localhost:80"},
		"--server: must have a port":                      {"run", "--server", "http://localhost:0"},
		"unknown flag: --nonsense":                        {"run", "--nonsense"},
		"--quiet: must not be given with --verbose":       {"run", "-qv"},
		"--token: must be visible ASCII characters":       {"run", "--token", "a b"},
	} {
		t.Run(want, func(t *testing.T) {
			o, g, err := parse(t, args...)
			if err == nil {
				_, err = o.spec(g)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestALimitBeyondAllNumbersIsLeftToTheEngineWhichNamesItsMaximum(t *testing.T) {
	for _, args := range [][]string{{"--timeout", "1e30"}, {"--timeout", "Inf"}, {"--memory", "9223372036854775807"}, {"--disk", "8796093022208"}} {
		o, g, err := parse(t, append([]string{"run"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := o.spec(g)
		if l := spec.Limits; err != nil || max(int64(l.Timeout), l.MemoryBytes, l.DiskBytes) != math.MaxInt64 {
			t.Errorf("%q: %+v, %v", args, l, err)
		}
	}
}

func TestAVariableThatIsNotSetIsNamed(t *testing.T) {
	t.Setenv("PYEXEC_TEST_SET", "x")
	var said strings.Builder
	o, g, err := parse(t, "run", "--env", "PYEXEC_TEST_SET", "--env", "PYEXEC_TEST_UNSET")
	if err != nil {
		t.Fatal(err)
	}
	g.Err = &said
	s, err := o.spec(g)
	if err != nil || len(s.Env) != 1 || s.Env["PYEXEC_TEST_SET"] != "x" {
		t.Errorf("%v, %v", s.Env, err)
	}
	if want := "--env: PYEXEC_TEST_UNSET is not set here, and is left out"; !strings.Contains(said.String(), want) || strings.Contains(said.String(), "TEST_SET ") {
		t.Errorf("said %q, want %q", &said, want)
	}
}

func TestASubmissionIsDurableAndHasItsRequirements(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.txt")
	if err := os.WriteFile(file, []byte("idna\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args    []string
		durable bool
	}{
		{[]string{"submit", "x.py"}, true},
		{[]string{"run", "--async", "x.py"}, true},
		{[]string{"run", "x.py"}, false},
	} {
		o, _, err := parse(t, append(c.args, "--server", "http://127.0.0.1:1", "--requirements", file)...)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := o.prepare(); err != nil || s.Durable != c.durable || s.Requirements != "idna\n" {
			t.Errorf("%v: %+v, %v", c.args, s, err)
		}
	}
}

func TestAFolderIsNoStandardInput(t *testing.T) {
	t.Parallel()
	o := runOptions{program: program{stdin: t.TempDir()}}
	if s, err := o.programStdin(); s != nil || err == nil || !strings.HasSuffix(err.Error(), "is a folder)") {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestClientVariablesYieldToFlags(t *testing.T) {
	t.Setenv("PYEXEC_SERVER", "http://variable/")
	t.Setenv("PYEXEC_TOKEN", "t1")
	t.Setenv("PYEXEC_CONFIG", "c1")
	_, g, err := parse(t, "run", "--token", "t2")
	if err != nil || g.server != "http://variable" || g.token != "t2" || g.config != "c1" {
		t.Errorf("%v %+v", err, g)
	}
	_, g, err = parse(t, "run", "--server", "")
	if err != nil || g.server != "" {
		t.Errorf("%v %q", err, g.server)
	}
}

// TestTheGlobalFlags holds them to the PRD's list and the few that were added.
func TestTheGlobalFlags(t *testing.T) {
	t.Parallel()
	root := newGlobal(IO{}, app.Bundle{}).root()
	want := "server token config timeout memory disk cpu network image async quiet verbose json"
	for name := range strings.FieldsSeq(want) {
		if root.PersistentFlags().Lookup(name) == nil {
			t.Errorf("--%s is missing", name)
		}
	}
	for _, command := range []string{"run", "submit", "follow", "logs", "kill", "version", "ls", "session", "backends", "serve", "doctor", "config", "plugin", "completion"} {
		if c, _, err := root.Find([]string{command}); err != nil || c.Name() != command {
			t.Errorf("%s: %v", command, err)
		}
	}
}
