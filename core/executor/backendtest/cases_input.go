package backendtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func inputRules() []rule {
	return []rule{
		{"BE-10", "standard input arrives whole, byte for byte, and ends", stdinGiven},
		{"BE-11", "without standard input the program reads its end at once", stdinEmpty},
		{"BE-12", "standard input that is not read delays nothing", stdinUnread},
		{"BE-13", "the workspace's files arrive with content, folders and the executable bit", filesIn},
		{"BE-14", "arguments arrive unchanged: unicode, spaces, newlines, empty ones", arguments},
		{"BE-15", "the environment is exactly the documented one, Spec.Env wins, and no variable of the host leaks", environment},
		{"BE-16", "Artifacts are the files that Outputs names, without following links", artifacts},
		{"BE-17", "the current folder is HOME, holds the files of the program alone, and can be written; so can TMPDIR, which lies outside of it", workFolder},
	}
}

var copyStdin = Program{
	Python: "import sys, shutil\nshutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)\n",
	Fake:   "read-stdin",
}

func stdinGiven(c *Case) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, data := range [][]byte{[]byte("one\ntwo"), every, bytes.Repeat(every, 4096)} {
		job := c.job(copyStdin)
		c.stdin(&job, data)
		r := c.run(job).succeeded()
		if r.stdout() != string(data) {
			c.Errorf("of %d bytes %d came back, or others", len(data), len(r.stdout()))
		}
	}
	// The Workspace and stdin come from one stream, so stdin is opened after the tar was read to its end.
	both := c.job(copyStdin)
	workspace := &source{c: c, what: "workspace", open: func() io.ReadCloser {
		return io.NopCloser(bytes.NewReader(archive(entry{name: "a.txt", text: "a"})))
	}}
	c.Cleanup(workspace.verdict)
	both.Workspace = workspace.source()
	both.Stdin = c.source("stdin", workspace, func() io.ReadCloser { return io.NopCloser(strings.NewReader("behind")) })
	c.run(both).succeeded().prints("behind")
}

func stdinEmpty(c *Case) {
	count := Program{
		Python: "import sys\nprint(len(sys.stdin.buffer.read()))\n",
		Fake:   "count-stdin",
	}
	c.program(count).succeeded().prints("0\n")
	job := c.job(count)
	c.stdin(&job, nil)
	c.run(job).succeeded().prints("0\n")
}

func stdinUnread(c *Case) {
	for _, p := range []Program{
		{Python: "print('done')\n", Fake: "print done"},
		{Python: "import os\nos.close(0)\nprint('done')\n", Fake: "close-stdin\nprint done"},
		{Python: "import sys\nsys.stdin.buffer.read(10)\nprint('done')\n", Fake: "print done"},
	} {
		job := c.job(p)
		job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return newEndless() })
		c.run(job).succeeded().prints("done\n")
	}
}

func filesIn(c *Case) {
	big := strings.Repeat("0123456789abcdef", 1<<16)
	job := c.job(Program{
		Python: `
import os
for folder, _, names in sorted(os.walk(".")):
    for name in sorted(names):
        path = os.path.relpath(os.path.join(folder, name))
        if path != "main.py":
            print(len(open(path, "rb").read()), '"' + path + '"')
print(os.access("run.sh", os.X_OK))
print(os.access("empty", os.X_OK))
`,
		Fake: `
remove main.py
ls
executable run.sh
executable empty
`,
	})
	c.workspace(&job, archive(
		entry{name: "a/", kind: '5', mode: 0o755},
		entry{name: "a/b/", kind: '5', mode: 0o755},
		entry{name: "a/b/big", text: big},
		entry{name: "empty"},
		entry{name: "grüße ☃.txt", text: "hi"},
		entry{name: "run.sh", text: "#!/bin/sh\n", mode: 0o755},
		entry{name: "x/deep/er/file", text: "12345"},
	))
	lines := []string{
		`1048576 "a/b/big"`, `0 "empty"`, `2 "grüße ☃.txt"`, `10 "run.sh"`, `5 "x/deep/er/file"`,
	}
	r := c.run(job).succeeded()
	got := strings.Split(strings.TrimSuffix(r.stdout(), "\n"), "\n")
	if len(got) < 2 {
		c.Fatalf("it prints %q", r.stdout())
	}
	bits := strings.ToLower(strings.Join(got[len(got)-2:], " "))
	got = got[:len(got)-2]
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) || bits != "true false" {
		c.Errorf("got %q and %q, want %q", got, bits, lines)
	}
}

func arguments(c *Case) {
	args := []string{"plain", "two words", "", "--flag=x", "line\nbreak", "tab\tquote\"'", "grüße ☃", "$HOME `id` *"}
	job := c.job(Program{
		Python: `
import json, sys
for a in sys.argv[1:]:
    print(json.dumps(a, ensure_ascii=False))
`,
		Fake: "args",
	})
	job.Spec.Args = args
	var want strings.Builder
	for _, a := range args {
		want.WriteString(strconv.Quote(a) + "\n")
	}
	c.run(job).succeeded().prints(want.String())
}

// canary is a variable in the host's environment during BE-15.
const canary = "PYEXEC_LAW_CANARY"

func environment(c *Case) {
	if _, ok := os.LookupEnv(canary); !ok { // Run has set the variable before it made the Backend
		if err := os.Setenv(canary, "leaked"); err != nil {
			c.Fatalf("setenv: %v", err)
		}
		c.Cleanup(func() { _ = os.Unsetenv(canary) }) // cannot fail for a valid name
	}
	show := Program{
		Python: `
import json, os
for k in sorted(os.environ):
    if k != "LC_CTYPE":  # set by Python itself, PEP 538
        print(json.dumps(k + "=" + os.environ[k], ensure_ascii=False))
`,
		Fake: "env",
	}
	env := func(set map[string]string) map[string]string {
		job := c.job(show)
		job.Spec.Env = set
		r := c.run(job).succeeded()
		got := map[string]string{}
		for line := range strings.Lines(r.stdout()) {
			plain, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
			if err != nil {
				c.Fatalf("cannot read %q: %v", line, err)
			}
			k, v, _ := strings.Cut(plain, "=")
			got[k] = v
		}
		return got
	}
	expect := func(got, want map[string]string) {
		for k, v := range want {
			if w, ok := got[k]; !ok || v != "*" && v != w {
				c.Errorf("%s is %q, want %q", k, w, v)
			}
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				c.Errorf("the program sees %s=%q", k, v)
			}
		}
	}
	expect(env(nil), map[string]string{"PATH": "*", "HOME": "*", "TMPDIR": "*", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"})
	expect(env(map[string]string{"LANG": "C", "MINE": "a=b\n☃", "EMPTY": "", "PYTHONUNBUFFERED": ""}),
		map[string]string{"PATH": "*", "HOME": "*", "TMPDIR": "*", "LANG": "C", "MINE": "a=b\n☃", "EMPTY": ""})
	expect(env(nil), map[string]string{"PATH": "*", "HOME": "*", "TMPDIR": "*", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"})
}

func artifacts(c *Case) {
	maker := Program{
		Python: `
import os
os.makedirs("out/deep/er")
open("out/a.txt", "w").write("alpha")
open("out/deep/er/b.txt", "w").write("beta")
open("out/c.bin", "wb").write(b"\x00\xff")
open("note.txt", "w").write("note")
os.symlink("/etc/passwd", "out/link.txt")
os.symlink("../note.txt", "out/near.txt")
`,
		Fake: `
write-file out/a.txt alpha
write-file out/deep/er/b.txt beta
write-file out/c.bin "\x00\xff"
write-file note.txt note
`,
	}
	job := c.job(maker)
	job.Spec.Outputs = []string{"out/**/*.txt", "note.txt", "absent/*"}
	if !c.caps().Artifacts {
		c.refused(job, "outputs")
		return
	}
	collect := func(job executor.Job, want map[string]string) {
		r := c.run(job).succeeded()
		for path, text := range want {
			if got, ok := r.file(path); !ok || string(got) != text {
				c.Errorf("artifact %q is %q (there: %t), want %q", path, got, ok, text)
			}
		}
		for _, a := range r.result.Artifacts {
			if _, ok := want[a.Path]; !ok {
				c.Errorf("artifact %q was not asked for", a.Path)
			}
		}
	}
	collect(job, map[string]string{"out/a.txt": "alpha", "out/deep/er/b.txt": "beta", "note.txt": "note"})

	folder := c.job(maker)
	folder.Spec.Outputs = []string{"out/deep", "out/a.txt"}
	collect(folder, map[string]string{"out/a.txt": "alpha", "out/deep/er/b.txt": "beta"})

	changed := c.job(maker)
	changed.Spec.OutputsChanged = true
	c.workspace(&changed, archive(entry{name: "old.txt", text: "old"}, entry{name: "note.txt", text: "replaced"}))
	collect(changed, map[string]string{"out/a.txt": "alpha", "out/deep/er/b.txt": "beta", "out/c.bin": "\x00\xff", "note.txt": "note"})

	// The files of a program that has failed are collected too. They help to find the cause.
	failed := c.job(Program{
		Python: "open('log.txt', 'w').write('why')\nraise SystemExit(3)\n",
		Fake:   "write-file log.txt why\nexit 3",
	})
	failed.Spec.Outputs = []string{"*.txt"}
	r := c.run(failed).status(executor.StatusFailed).exit(3)
	if got, _ := r.file("log.txt"); string(got) != "why" {
		c.Errorf("a failed program's artifact is %q", got)
	}
}

func workFolder(c *Case) {
	r := c.program(Program{
		Python: `
import os, tempfile
home, here = os.path.realpath(os.environ["HOME"]), os.path.realpath(os.getcwd())
print(home == here)
tmp = os.path.realpath(os.environ["TMPDIR"])
print(os.listdir(".") == ["main.py"] and not (tmp + "/").startswith(here + "/"))
open("made.txt", "w").write("x")
with tempfile.NamedTemporaryFile() as f:
    print(os.path.realpath(f.name).startswith(tmp + "/"))
`,
		Fake: `
print True
tmpdir
write-file made.txt x
print True
`,
	}).succeeded()
	if got := strings.ToLower(r.stdout()); got != "true\ntrue\ntrue\n" {
		c.Errorf("HOME is the current folder and holds main.py alone, TMPDIR lies elsewhere, temporary files go there: %q", fmt.Sprint(got))
	}
}
