package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAWrongUseIsAnsweredWithTheThingTheReasonAndTheRemedy is the table of what people try: each answer names the thing, says what is
// wrong with it, and what to do.
func TestAWrongUseIsAnsweredWithTheThingTheReasonAndTheRemedy(t *testing.T) {
	bundle := withFake(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"script.py": "print 1", "a.js": "print 1", "a.rb": "puts 1", "notes.txt": "x", "n.ipynb": "{}", "p.tar.gz": "x", "js/index.js": "print 1", "empty.py": "",
		"bad.yaml": "http:\n\tbind: x\n", "prot.yaml": "http: {prot: 1}\n", "size.yaml": "limits: {default: {memory_mb: 2G}}\n",
		"time.yaml": "limits: {default: {timeout_seconds: 1h}}\n", "kind.yaml": "backends: {x: {type: k8s}}\n", "half.yaml": "backends: {fake: {}, mine: {path: /x}}\nbackend: fake\n",
		"twice.yaml": "data_dir: a\ndata_dir: b\n", "root.yaml": "timeout: 3\n", "odd.yaml": "frobnicate: 3\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const nowhere = "http://127.0.0.1:1"
	for _, c := range []struct {
		args string
		want []string
		env  string // NAME=VALUE
	}{
		// What to run.
		{args: "run nosuch.py", want: []string{"nosuch.py", "no such file or folder"}},
		{args: "run scrpt.py", want: []string{"scrpt.py", "no such file", "did you mean script.py?"}},
		{args: "nosuch.py", want: []string{"nosuch.py", "no such file"}},
		{args: "run http://example.com/a.py", want: []string{"http://example.com/a.py", "fetches no URL", "curl -fsSL URL | python-executor run"}},
		{args: "https://example.com/a.py", want: []string{"https://example.com/a.py", "fetches no URL", "curl"}},
		{args: "run git@host:a/b", want: []string{"git@host:a/b", "fetches no URL", "download it first"}},
		{args: "run print(1)", want: []string{"print(1)", "no such file", "-c CODE"}},
		{args: "run -c", want: []string{"flag needs an argument: 'c'", "--help"}},
		{args: "run -c x script.py", want: []string{"-c: ", "another input", "after --"}},
		{args: "run a.rb", want: []string{"a.rb", "not Ruby", "a command runs other interpreters"}},
		{args: "run notes.txt", want: []string{"notes.txt", "not text (.txt)", "name the .py file"}},
		{args: "run n.ipynb", want: []string{"n.ipynb", "not a notebook", "nbconvert"}},
		{args: "run p.tar.gz", want: []string{"p.tar.gz", "is compressed", "decompress it first"}},
		{args: "run js", want: []string{"no .py file in js", "--entrypoint", "index.js"}},
		{args: "run script.py a.js", want: []string{"two inputs", "script.py and a.js", "after --"}},
		{args: "run --language cobol script.py", want: []string{"--language", "python, javascript or shell", "cobol"}},
		{args: "run --entrypoint x.py js", want: []string{"--entrypoint x.py", "no such file in js"}},
		{args: "run", want: []string{"no input", "-c CODE"}},
		// Flags.
		{args: "run --tiemout 3 script.py", want: []string{"--tiemout", "unknown flag", "did you mean --timeout?"}},
		{args: "run script.py --epochs 3", want: []string{"--epochs", "unknown flag", "the program's own arguments go after --"}},
		{args: "run -e A=1 script.py", want: []string{"'e'", "unknown shorthand", "did you mean --env?"}},
		{args: "run --mem 5 script.py", want: []string{"--mem", "unknown flag", "did you mean --memory?"}},
		{args: "run --timeout soon script.py", want: []string{"--timeout", "a number of seconds", "90s", "soon"}},
		{args: "run --memory lots script.py", want: []string{"--memory", "a number of MB", "512M", "lots"}},
		{args: "run --memory 5K script.py", want: []string{"--memory", "a whole number of MB", "5K"}},
		{args: "run --cpu 1.5 script.py", want: []string{"--cpu", "whole number of shares", "--cpus"}},
		{args: "run --cpus none script.py", want: []string{"--cpus", "a number > 0, such as 1.5", "none"}},
		{args: "run --kill-grace 0 script.py", want: []string{"--kill-grace", "> 0 seconds"}},
		{args: "run --python 3.12.1 script.py", want: []string{"--python", "a minor version", "3.12", "3.12.1"}},
		{args: "run --backend dokcer script.py", want: []string{"backend", "must name an entry of backends or a type", "dokcer"}},
		{args: "run --artifact *.png script.py", want: []string{"--artifact", "--output DIR"}},
		{args: "run --requirements none.txt script.py", want: []string{"--requirements", "none.txt", "no such file"}},
		{args: "run --async script.py", want: []string{"--async", "needs a server", "--server or PYEXEC_SERVER", "python-executor serve"}},
		{args: "version --cpu 3", want: []string{"--cpu", "python-executor version, which does not use it", "run, session new, submit"}},
		{args: "ls --memory 3", want: []string{"--memory", "ls, which does not use it", "run"}},
		{args: "follow x --async", want: []string{"--async", "follow, which does not use it", "run"}},
		{args: "serve --server " + nowhere, want: []string{"--server", "serve, which does not use it"}},
		{args: "serve --port 80", want: []string{"--port", "unknown flag", "did you mean --bind?"}},
		{args: "serve --host 0.0.0.0", want: []string{"--host", "unknown flag", "did you mean --bind?"}},
		{args: "serve --bind 8080", want: []string{"http.bind", "host:port", "--bind"}},
		{args: "serve --bind 0.0.0.0:80", want: []string{"http.bind", "loopback", "http.tokens", "--allow-unauthenticated"}},
		// Words that are no commands.
		{args: "help nope", want: []string{`"nope"`, "unknown command", "--help"}},
		{args: "help rnu", want: []string{`"rnu"`, "unknown command", "did you mean run?"}},
		{args: "config chek", want: []string{`"config chek"`, "unknown command", "did you mean config check?"}},
		{args: "session nwe", want: []string{`"session nwe"`, "unknown command", "did you mean session new?"}},
		{args: "plugin chek", want: []string{`"plugin chek"`, "did you mean plugin check?"}},
		{args: "prune", want: []string{`"prune"`, "without a command", "retention"}},
		{args: "ps", want: []string{`"ps"`, "ls lists executions"}},
		{args: "cancel", want: []string{`"cancel"`, "kill ID"}},
		{args: "repl", want: []string{`"repl"`, "session exec -i"}},
		{args: "pip install numpy", want: []string{`"pip"`, "--requirements FILE"}},
		{args: "js", want: []string{`"js"`, "unknown command", "run js runs it"}},
		{args: "frobnicate --hard", want: []string{`"frobnicate"`, "unknown command", "--help"}},
		// Servers and sessions.
		{args: "ls", want: []string{"ls needs a server", "PYEXEC_SERVER", "python-executor serve"}},
		{args: "ls --server " + nowhere, want: []string{"127.0.0.1:1", "refused", "check --server", "python-executor serve runs there"}},
		{args: "run script.py --server " + nowhere, want: []string{"127.0.0.1:1", "refused", "check --server"}},
		{args: "ls --server localhost:8080", want: []string{"--server", "http:// or https://", "did you mean http://localhost:8080?"}},
		{args: "ls", env: "PYEXEC_SERVER=localhost:8080", want: []string{"PYEXEC_SERVER", "did you mean http://localhost:8080?"}},
		{args: "ls", env: "PYEXEC_TOKEN=a b", want: []string{"PYEXEC_TOKEN", "white space"}},
		{args: "session cp x nope:y", want: []string{"session cp needs a server", "PYEXEC_SERVER"}},
		{args: "session cp script.py y", want: []string{"script.py and y are both local", "NAME:PATH"}},
		{args: "session cp a:x b:y", want: []string{"a:x and b:y are both in a session", "a local path"}},
		{args: "session cp https://example.com/d.csv s:d.csv", want: []string{"https://example.com/d.csv", "fetches no URL", "curl"}},
		{args: "session run s --memory 5 -c 1", want: []string{"--memory", "session new", "the whole session"}},
		{args: "session run s", want: []string{"no code", "-c CODE"}},
		// The configuration: files, variables, flags.
		{args: "config check --config none.yaml", want: []string{"none.yaml", "no such file"}},
		{args: "config check --config js", want: []string{"js", "is a directory"}},
		{args: "config check --config bad.yaml", want: []string{"bad.yaml", "line 2", "indented by spaces"}},
		{args: "config check --config prot.yaml", want: []string{"http.prot", "unknown key", "prot.yaml:1", "known are ", "bind"}},
		{args: "config check --config root.yaml", want: []string{"timeout", "unknown key", "did you mean limits.default.timeout_seconds?"}},
		{args: "config check --config odd.yaml", want: []string{"frobnicate", "unknown key", "known are ", "backends", "engine"}},
		{args: "config check --config size.yaml", want: []string{"limits.default.memory_mb", "a whole number of MB", "2G", "size.yaml:1"}},
		{args: "config check --config time.yaml", want: []string{"limits.default.timeout_seconds", "a number of seconds", "1h", "time.yaml:1"}},
		{args: "config check --config kind.yaml", want: []string{"backends.x.type", "k8s", "bundled type (fake)", "path and sha256"}},
		{args: "config check --config half.yaml", want: []string{"backends.mine", "both path and sha256"}},
		{args: "config check --config twice.yaml", want: []string{"data_dir", "duplicate key", "twice.yaml:2"}},
		{args: "config check", env: "PYEXEC_HTTP_BNID=x", want: []string{"PYEXEC_HTTP_BNID", "unknown key", "did you mean PYEXEC_HTTP_BIND?"}},
		{args: "config check", env: "PYEXEC_LIMITS_DEFAULT_MEMORY_MB=2G", want: []string{"limits.default.memory_mb", "a whole number of MB", "PYEXEC_LIMITS_DEFAULT_MEMORY_MB"}},
		{args: "config check", env: "PYEXEC_BACKEND=fkae", want: []string{"backend", "must name an entry", "PYEXEC_BACKEND", "fkae", "did you mean fake?"}},
		{args: "config check --backend fkae", want: []string{"backend", "--backend", "did you mean fake?"}},
	} {
		t.Run(c.args+c.env, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			o := execute(t, t.Context(), bundle, "", strings.Fields(c.args)...)
			if o.status == 0 || o.stdout != "" || !strings.HasPrefix(o.stderr, "python-executor: ") {
				t.Errorf("%+v", o)
			}
			for _, part := range c.want {
				if !strings.Contains(o.stderr, part) {
					t.Errorf("lacks %q: %s", part, o.stderr)
				}
			}
		})
	}
}

// TestWhatLooksWrongWorks: other ways to say the same.
func TestWhatLooksWrongWorks(t *testing.T) {
	bundle := withFake(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"script.py": "print py", "tool": "#!/bin/sh\nprint sh", "p/main.py": "print folder"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"script.py": "py\n", "./script.py --timeout 1m": "py\n", "p/": "folder\n", "run script.py --memory 0.5G --disk 1G --cpus 1.5 --timeout 1h": "py\n",
		"run -c print%1": "1\n", "-c print%1": "1\n", "run -c args -- a": "\"a\"\n", "run --kill-grace 2s script.py": "py\n",
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "%", " ")
		}
		if o := execute(t, t.Context(), bundle, "", words...); o != (outcome{0, want, ""}) {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

// TestHelpShowsTheGlobalFlagsThatApply: each command is in the table of what it takes, and its help shows no other global flag.
func TestHelpShowsTheGlobalFlagsThatApply(t *testing.T) {
	bundle := withFake(t)
	for path, list := range taken {
		o := execute(t, t.Context(), bundle, "", append(strings.Fields(path), "--help")...)
		if o.status != 0 {
			t.Errorf("%s: %+v", path, o)
		}
		for flag := range strings.FieldsSeq(client + limits + "config async") {
			shown, takes := strings.Contains(o.stdout, " --"+flag+" "), strings.Contains(" "+list+" ", " "+flag+" ")
			if shown != takes {
				t.Errorf("%s: --%s: shown %v, taken %v", path, flag, shown, takes)
			}
		}
	}
	for _, c := range newGlobal(IO{}, bundle).root().Commands() {
		if _, known := taken[pathOf(c)]; !known && !c.Hidden {
			t.Errorf("%s is not in the table", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			if _, known := taken[pathOf(sub)]; !known && !sub.Hidden {
				t.Errorf("%s is not in the table", sub.CommandPath())
			}
		}
	}
}
