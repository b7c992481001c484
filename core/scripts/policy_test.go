package scripts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func TestAVariableOfTheRequestBeatsTheHosts(t *testing.T) {
	t.Setenv("LANG", "of the host")
	t.Setenv("TZ", "of the host")
	t.Setenv("SHELL", "")
	t.Setenv("SCRIPTS_TEST_SECRET", "of the host")
	p := policy{config.Scripts{Env: []string{"LANG", "EMPTY"}}}
	env, err := p.environment(map[string]string{"LANG": "of the request", "EMPTY": ""})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"LANG": "of the request", "TZ": "of the host", "EMPTY": "", "PATH": os.Getenv("PATH")} {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("a script gets %s=%q (there %t), want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"SCRIPTS_TEST_SECRET", "SHELL"} {
		if _, ok := env[name]; ok {
			t.Errorf("a script gets %s, which is not allowed or not set", name)
		}
	}
	if _, err := p.environment(map[string]string{"TZ": "x"}); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a request may set TZ, which is not on the list: %v", err)
	}
	if again, err := p.environment(nil); err != nil || again["LANG"] != "of the host" {
		t.Errorf("without a request LANG is %q, error %v, want the host's", again["LANG"], err)
	}
}

func TestArgumentsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	p := policy{config.Scripts{Args: []string{"--port", "--name", "-v", "--count"}}}
	for _, test := range []struct {
		name  string
		args  []string
		want  []string
		field string // of the error, if there is to be one
	}{
		{"none", nil, nil, ""},
		{"a flag alone", []string{"-v"}, []string{"-v"}, ""},
		{"a flag twice", []string{"-v", "-v"}, []string{"-v", "-v"}, ""},
		{"a value behind a flag", []string{"--name", "x"}, []string{"--name", "x"}, ""},
		{"a value with an equals sign", []string{"--name=a=b"}, []string{"--name=a=b"}, ""},
		{"an empty value", []string{"--name="}, []string{"--name="}, ""},
		{"an empty word", []string{"--name", ""}, []string{"--name", ""}, ""},
		{"the largest port", []string{"--port", "65535"}, []string{"--port", "65535"}, ""},
		{"the smallest port", []string{"--port=0"}, []string{"--port=0"}, ""},
		{"a number as JSON may have it", []string{"--port=8080.0"}, []string{"--port=8080"}, ""},
		{"a number with blanks", []string{"--port", " 80 "}, []string{"--port", "80"}, ""},
		{"a large count", []string{"--count", "2147483648"}, []string{"--count", "2147483648"}, ""},
		{"a port above the largest", []string{"--port", "65536"}, nil, "args[1]"},
		{"a port that is a fraction", []string{"--port=80.5"}, nil, "args[0]"},
		{"a port that is negative, as a flag", []string{"--port", "-1"}, nil, "args[1]"},
		{"a port that is negative", []string{"--port=-1"}, nil, "args[0]"},
		{"a port that is no number", []string{"--port", "NaN"}, nil, "args[1]"},
		{"a port beyond all numbers", []string{"--port", "1e300"}, nil, "args[1]"},
		{"a count above its bound", []string{"--count=2147483649"}, nil, "args[0]"},
		{"a value without a flag", []string{"x"}, nil, "args[0]"},
		{"a second value", []string{"--name", "a", "b"}, nil, "args[2]"},
		{"a value behind one that has its own", []string{"--name=a", "b"}, nil, "args[1]"},
		{"another flag", []string{"-v", "--other"}, nil, "args[1]"},
		{"another flag with a value", []string{"--other=--name"}, nil, "args[0]"},
		{"the beginning of a flag", []string{"--nam"}, nil, "args[0]"},
		{"a flag that begins as one", []string{"--names"}, nil, "args[0]"},
		{"a lone dash", []string{"-"}, nil, "args[0]"},
		{"a word behind the end of options", []string{"--", "x"}, nil, "args[1]"},
		{"a line feed", []string{"--name", "a\nb"}, nil, "args[1]"},
		{"a carriage return", []string{"--name=a\rb"}, nil, "args[0]"},
		{"a NUL byte", []string{"--name=a\x00b"}, nil, "args[0]"},
	} {
		got, err := p.arguments(test.args)
		if test.field != "" {
			e, ok := err.(*executor.Error) //nolint:errorlint // it is returned as such
			if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != test.field {
				t.Errorf("%s: %q became %q with error %v, want invalid about %s", test.name, test.args, got, err, test.field)
			}
			continue
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q became %q with error %v, want %q", test.name, test.args, got, err, test.want)
		}
	}
}

func TestAScriptMustReallyLieBelowTheRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, folder := range []string{"root", "rooted"} {
		if err := os.Mkdir(at(folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(folder+"/run.sh"), []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": "root", "root/out.sh": at("rooted/run.sh"), "rooted/in.sh": at("root/run.sh")} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, root, script, real string
	}{
		{"below the root", "root", "root/run.sh", "root/run.sh"},
		{"below a root that is a link", "link", "root/run.sh", "root/run.sh"},
		{"by a link into the root", "root", "rooted/in.sh", "root/run.sh"},
		{"beside a root of a similar name", "root", "rooted/run.sh", ""},
		{"by a link out of the root", "root", "root/out.sh", ""},
		{"below a root that is not there", "none", "root/run.sh", ""},
	} {
		p := policy{config.Scripts{Root: at(test.root), Allowed: []string{at(test.script)}}}
		got, err := p.find(at(test.script))
		switch {
		case test.real == "" && executor.CodeOf(err) != executor.Invalid:
			t.Errorf("%s: %s is %s, error %v, want invalid", test.name, test.script, got.real, err)
		case test.real != "" && (err != nil || got.real != at(test.real) || got.dir != filepath.Dir(at(test.real))):
			t.Errorf("%s: %s is %s in %s, error %v, want %s", test.name, test.script, got.real, got.dir, err, test.real)
		}
	}
	anywhere := policy{config.Scripts{Allowed: []string{at("rooted/../root/run.sh")}}}
	for _, path := range []string{at("root/run.sh"), at("root/./run.sh")} {
		if _, err := anywhere.find(path); err != nil {
			t.Errorf("%s is allowed under another name: %v", path, err)
		}
	}
	if _, err := (policy{config.Scripts{Allowed: []string{"policy_test.go"}}}).find("policy_test.go"); executor.CodeOf(err) != executor.Denied {
		t.Errorf("a path that is not absolute: %v, want denied", err)
	}
}

func TestTheLimitsOfAScript(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := p.script("ok.sh", "true")
	p.policy.TimeoutMS, p.policy.MaxOutputBytes = 60_000, 1000
	b := p.backend()
	for _, test := range []struct {
		name     string
		resolved time.Duration
		asked    executor.Limits
		timeout  time.Duration
		output   int64
	}{
		{"nothing asked for: the policy's", time.Hour, executor.Limits{}, time.Minute, 1000},
		{"the server's maximum is less", time.Second, executor.Limits{}, time.Second, 1000},
		{"asked for more time", time.Hour, executor.Limits{Timeout: time.Hour}, time.Hour, 1000},
		{"asked for less output", time.Hour, executor.Limits{OutputBytes: 10}, time.Minute, 10},
		{"asked for more output", time.Hour, executor.Limits{OutputBytes: 10_000}, time.Minute, 1000},
	} {
		j := job(path)
		j.Limits.Timeout, j.Spec.Limits = test.resolved, test.asked
		got, err := b.plan(j)
		if err != nil || got.limits.Timeout != test.timeout || got.limits.OutputBytes != test.output || got.limits.KillGrace != j.Limits.KillGrace {
			t.Errorf("%s: %+v, error %v, want %s and %d bytes", test.name, got.limits, err, test.timeout, test.output)
		}
	}
}

// Every field of a Spec either has a meaning for a script or is refused.
func TestEveryFieldWithoutAMeaningIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := p.script("ok.sh", "true")
	b := p.backend()
	fields := map[string]func(*executor.Job){
		"code":                    func(j *executor.Job) { j.Spec.Code = "x" },
		"command":                 func(j *executor.Job) { j.Spec.Command = []string{"x"} },
		"entrypoint":              func(j *executor.Job) { j.Spec.Entrypoint = "x" },
		"tar":                     func(j *executor.Job) { j.Workspace = &executor.Source{} },
		"requirements_txt":        func(j *executor.Job) { j.Spec.Requirements = "x" },
		"pre_commands":            func(j *executor.Job) { j.Spec.PreCommands = []string{"x"} },
		"docker_image":            func(j *executor.Job) { j.Spec.Image = "x" },
		"python_version":          func(j *executor.Job) { j.Spec.PythonVersion = "3.12" },
		"outputs":                 func(j *executor.Job) { j.Spec.Outputs = []string{"x"} },
		"outputs_changed":         func(j *executor.Job) { j.Spec.OutputsChanged = true },
		"interpreter":             func(j *executor.Job) { j.Spec.Interpreter = executor.InterpreterSystem },
		"host_directory":          func(j *executor.Job) { j.Spec.HostDirectory = "/x" },
		"session":                 func(j *executor.Job) { j.Spec.Session = "x" },
		"config.memory_mb":        func(j *executor.Job) { j.Spec.Limits.MemoryBytes = 1 },
		"config.disk_mb":          func(j *executor.Job) { j.Spec.Limits.DiskBytes = 1 },
		"config.cpu_shares":       func(j *executor.Job) { j.Spec.Limits.CPUShares = 2 },
		"config.pids":             func(j *executor.Job) { j.Spec.Limits.PIDs = 1 },
		"config.network_disabled": func(j *executor.Job) { j.Spec.Network = executor.NetworkOff },
		"sample_interval_seconds": func(j *executor.Job) { j.Spec.SampleInterval = time.Second },
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		j := job(path)
		fields[field](&j)
		if _, err := b.plan(j); executor.CodeOf(err) != executor.Unimplemented || !strings.HasPrefix(fmt.Sprint(err), field+": ") {
			t.Errorf("%s is accepted or not named: %v", field, err)
		}
	}
}

func TestARefusalNamesTheListOfWhatIsAllowed(t *testing.T) {
	t.Parallel()
	p := policy{config.Scripts{Allowed: []string{"/a"}, Args: []string{"-v"}}}
	_, script := p.find("/b")
	_, flag := p.arguments([]string{"--rm"})
	_, word := p.arguments([]string{"rm"})
	for _, err := range []error{script, flag, word} {
		if err == nil || !strings.HasSuffix(err.Error(), ": list_allowed shows them") {
			t.Errorf("the refusal is %v", err)
		}
	}
}
