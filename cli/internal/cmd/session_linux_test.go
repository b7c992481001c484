package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// sessionServer serves a fake that has sessions. Its code has a minute to stop: a session of code that takes longer loses its state.
func sessionServer(t *testing.T) app.Bundle {
	t.Helper()
	return sessionServerWith(t, 60)
}

// sessionServerWith is sessionServer with a grace for code to stop, in seconds.
func sessionServerWith(t *testing.T, grace float64) app.Bundle {
	t.Helper()
	bundle := withFake(t)
	caps := fake.DefaultCapabilities()
	caps.Sessions = true
	caps.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
	startServerWith(t, bundle, fake.Section{Capabilities: &caps}, func(c *config.Config) {
		c.Limits.Default.KillGraceSeconds, c.Limits.Max.KillGraceSeconds = grace, max(grace, c.Limits.Max.KillGraceSeconds)
	})
	return bundle
}

// opened opens a session with the command and returns its id.
func opened(t *testing.T, bundle app.Bundle, args ...string) string {
	t.Helper()
	o := execute(t, t.Context(), bundle, "", append([]string{"session", "new"}, args...)...)
	id := strings.TrimSuffix(o.stdout, "\n")
	if o.status != 0 || o.stderr != "" || !strings.HasPrefix(id, "ctx-") || strings.ContainsAny(id, " \n") {
		t.Fatalf("%+v", o)
	}
	return id
}

func TestSessionsOnAServer(t *testing.T) {
	bundle := sessionServer(t)
	run := func(stdin string, args ...string) outcome {
		t.Helper()
		return execute(t, t.Context(), bundle, stdin, append([]string{"session"}, args...)...)
	}
	id := opened(t, bundle, "--name", "one", "--idle-timeout", "600")
	file := filepath.Join(t.TempDir(), "cell.py")
	if err := os.WriteFile(file, []byte("print from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		args  []string
		stdin string
		want  outcome
	}{
		{"state is made", []string{"run", id, "-c", "set x 100"}, "", outcome{0, "", ""}},
		{"and is there", []string{"run", id, "-c", "add x 1\nget x"}, "", outcome{0, "101\n", ""}},
		{"a file", []string{"run", id, file}, "", outcome{0, "from a file\n", ""}},
		{"a pipe", []string{"run", id}, "print piped", outcome{0, "piped\n", ""}},
		{"a dash", []string{"run", id, "-"}, "print piped", outcome{0, "piped\n", ""}},
		{"the last value is shown", []string{"run", id, "-c", "value x"}, "", outcome{0, "101\n", ""}},
		{"so is what is displayed", []string{"run", id, "-c", "display text/plain <plot>\ndisplay image/png bytes"}, "", outcome{0, "<plot>\n[image/png]\n", ""}},
		{"both streams and the exit code", []string{"run", id, "-c", "print out\nprint-err err\nexit 5"}, "", outcome{5, "out\n", "err\n"}},
		{"standard input", []string{"run", id, "-c", "read-stdin", "--stdin", "-"}, "fed", outcome{0, "fed", ""}},
		{"a command", []string{"exec", id, "--", "fake", "-c", "print beside"}, "", outcome{0, "beside\n", ""}},
		{"a command's exit code", []string{"exec", id, "--", "fake", "-c", "exit 7"}, "", outcome{7, "", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if o := run(test.stdin, test.args...); o != test.want {
				t.Errorf("%+v", o)
			}
		})
	}
	t.Run("json", func(t *testing.T) {
		o := run("", "run", id, "-c", "print hi\nvalue x\nexit 2", "--json")
		var r map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.status != 2 || r["stdout"] != "hi\n" || r["session_id"] != id || r["session_state"] != "kept" {
			t.Fatalf("%v %+v", err, o)
		}
		if displays, _ := json.Marshal(r["displays"]); string(displays) != `[{"data":"101","display":0,"mime":"text/plain","value":true}]` {
			t.Errorf("%s", displays)
		}
	})
	t.Run("async", func(t *testing.T) {
		o := run("", "run", id, "-c", "print later", "--async")
		exe := strings.TrimSpace(o.stdout)
		if o.status != 0 || !strings.HasPrefix(exe, "exe_") {
			t.Fatalf("%+v", o)
		}
		if o := execute(t, t.Context(), bundle, "", "follow", exe); o != (outcome{0, "later\n", ""}) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a timeout keeps the session", func(t *testing.T) {
		if o := run("", "run", id, "-c", "hang", "--timeout", "0.2"); o.status != 124 {
			t.Errorf("%+v", o)
		}
		if o := run("", "run", id, "-c", "get x"); o.stdout != "101\n" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("Ctrl-C interrupts and keeps the session", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		out := &lockedBuffer{on: func(text string) {
			if strings.Contains(text, "up") {
				cancel(interrupted{syscall.SIGINT})
			}
		}}
		if status := Execute(ctx, []string{"session", "run", id, "-c", "print up\nhang"}, IO{Out: out, Err: io.Discard}, bundle); status != 130 {
			t.Errorf("status %d", status)
		}
		if o := run("", "run", id, "-c", "get x"); o.stdout != "101\n" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("vars", func(t *testing.T) {
		if o := run("", "vars", id); o.status != 0 || !strings.HasPrefix(o.stdout, "NAME  TYPE") || !strings.Contains(o.stdout, "x ") || !strings.Contains(o.stdout, "101") {
			t.Errorf("%+v", o)
		}
		if o := run("", "vars", id, "--json"); o.status != 0 || !strings.Contains(o.stdout, `"name": "x"`) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("install", func(t *testing.T) {
		if o := run("", "install", id, "idna", "six"); o.status != 0 || !strings.Contains(o.stdout, "idna") || !strings.Contains(o.stdout, "six") {
			t.Errorf("%+v", o)
		}
		if o := run("", "install", id); o.status != 125 {
			t.Errorf("%+v", o)
		}
		file := filepath.Join(t.TempDir(), "r.txt")
		if err := os.WriteFile(file, []byte("\xff\xfep\x00r\x00o\x00b\x00e\x00\n\x00"), 0o600); err != nil { // as PowerShell writes it
			t.Fatal(err)
		}
		if o := run("", "install", id, "late", "--requirements", file); o.status != 0 || !strings.Contains(o.stdout, "\nlate") || !strings.Contains(o.stdout, "\nprobe") {
			t.Errorf("%+v", o)
		}
	})
	t.Run("ls", func(t *testing.T) {
		if o := run("", "ls"); o.status != 0 || !strings.HasPrefix(o.stdout, "ID ") || !strings.Contains(o.stdout, id+"  one   python    active  idle  fake") {
			t.Errorf("%+v", o)
		}
		var list struct {
			Sessions []struct {
				ID   string  `json:"session_id"`
				Idle float64 `json:"idle_timeout_seconds"`
			} `json:"sessions"`
		}
		if o := run("", "ls", "--json"); json.Unmarshal([]byte(o.stdout), &list) != nil || len(list.Sessions) != 1 || list.Sessions[0].ID != id || list.Sessions[0].Idle != 600 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("an interpreter that dies says so, and a restart brings it back", func(t *testing.T) {
		if o := run("", "run", id, "-c", "signal KILL"); o.status != 137 || !strings.Contains(o.stderr, "interpreter died of SIGKILL") {
			t.Errorf("%+v", o)
		}
		if o := run("", "run", id, "-c", "get x"); o.status != 125 || !strings.Contains(o.stderr, "lost") {
			t.Errorf("%+v", o)
		}
		if o := run("", "restart", id); o != (outcome{0, id + " active\n", ""}) {
			t.Errorf("%+v", o)
		}
		if o := run("", "run", id, "-c", "print back"); o.stdout != "back\n" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		if o := run("", "interrupt", id, "--json"); o.status != 0 || !strings.Contains(o.stdout, `"session_id": "`+id) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("rm", func(t *testing.T) {
		second := opened(t, bundle, "--language", "shell")
		if o := run("", "rm", id, second, "ctx-nope"); o.status != 125 || o.stdout != id+" closed\n"+second+" closed\n" || !strings.Contains(o.stderr, "not_found") {
			t.Errorf("%+v", o)
		}
		if o := run("", "rm", id, "--json"); o.status != 0 || !strings.Contains(o.stdout, `"status": "closed"`) {
			t.Errorf("%+v", o)
		}
		if o := run("", "run", id, "-c", "print 1"); o.status != 125 || !strings.Contains(o.stderr, "closed") {
			t.Errorf("%+v", o)
		}
	})
}

func TestASessionWhoseCodeDoesNotStopIsRestarted(t *testing.T) {
	bundle := sessionServerWith(t, 0.1)
	id := opened(t, bundle)
	var o outcome
	for _, timeout := range []string{"0.1", "2", "30"} { // on a busy machine a short one may come before the code ignores the interrupt
		o = execute(t, t.Context(), bundle, "", "session", "run", id, "-c", "ignore-int\nhang", "--timeout", timeout)
		if o.status != 124 || strings.Contains(o.stderr, "interpreter was restarted") {
			break
		}
	}
	if o.status != 124 || !strings.Contains(o.stderr, "interpreter was restarted") {
		t.Errorf("%+v", o)
	}
}

func TestDisplaysAreSaved(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	dir := filepath.Join(t.TempDir(), "out [1]")
	code := "display image/png one\ndisplay text/plain only text\ndisplay image/svg+xml <svg/>\ndisplay application/x-strange z"
	for range 2 { // a second run overwrites nothing
		if o := execute(t, t.Context(), bundle, "", "session", "run", id, "-c", code, "--output", dir); o.status != 0 || o.stdout != "[image/png]\nonly text\n[image/svg+xml]\n[application/x-strange]\n" || strings.Count(o.stderr, "saved ") != 3 {
			t.Fatalf("%+v", o)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "display-1.png display-2.svg display-3.bin display-4.png display-5.svg display-6.bin" {
		t.Errorf("%s", got)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "display-4.png")); err != nil || string(raw) != "one" {
		t.Errorf("%q %v", raw, err)
	}
	o := execute(t, t.Context(), bundle, "", "session", "run", id, "-c", "display image/png x", "--output", filepath.Join(dir, "json"), "--json")
	if o.status != 0 || !strings.HasPrefix(o.stdout, "{") || !strings.Contains(o.stdout, `"base64": "eA=="`) {
		t.Errorf("%+v", o)
	}
}

func TestFormsOfOneTypeAndOfOneValueDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &displayed{g: &global{IO: IO{Err: io.Discard}}, dir: dir}
	err := s.save(executor.Display{Data: map[string][]byte{"application/vnd.a+json": []byte("a"), "application/vnd.b+json": []byte("b"), "text/html": []byte("c"), "text/plain": nil}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"display-1.json": "a", "display-1-2.json": "b", "display-1.html": "c"} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != want {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
}

func TestFilesOfASession(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	write("a b.txt", "text")
	write("tree/one", "1")
	write("tree/sub/two é", "2")
	if err := os.Symlink("/etc/passwd", "tree/link"); err != nil {
		t.Fatal(err)
	}
	ok := func(stdin string, args ...string) outcome {
		t.Helper()
		o := execute(t, t.Context(), bundle, stdin, append([]string{"session"}, args...)...)
		if o.status != 0 {
			t.Fatalf("%v: %+v", args, o)
		}
		return o
	}
	ok("", "cp", "a b.txt", id+":")
	ok("", "cp", "tree/one", id+":.")
	ok("", "cp", "a b.txt", id+":new folder/")
	ok("", "cp", "a b.txt", id+":renamed.txt")
	ok("piped", "cp", "-", id+":from/stdin")
	if o := ok("", "cp", "-r", "tree", id+":"); !strings.Contains(o.stderr, "link is left out: not a regular file") {
		t.Errorf("%+v", o)
	}
	listed := ok("", "files", id, "-r", "--json")
	var files struct {
		Files []struct {
			Path      string `json:"path"`
			Directory bool   `json:"directory"`
		} `json:"files"`
	}
	if err := json.Unmarshal([]byte(listed.stdout), &files); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files.Files {
		if !f.Directory {
			names = append(names, f.Path)
		}
	}
	if slices.Sort(names); strings.Join(names, "|") != "a b.txt|from/stdin|new folder/a b.txt|one|renamed.txt|tree/one|tree/sub/two é" {
		t.Errorf("%v", names)
	}
	if o := ok("", "files", id); !strings.Contains(o.stdout, "  a b.txt\n") || !strings.Contains(o.stdout, "  tree/\n") || strings.Contains(o.stdout, "tree/one") {
		t.Errorf("%+v", o)
	}
	if o := ok("", "files", id, "tree/"); !strings.Contains(o.stdout, "tree/one") {
		t.Errorf("%+v", o)
	}
	if o := ok("", "cp", id+":from/stdin", "-"); o.stdout != "piped" {
		t.Errorf("%+v", o)
	}
	ok("", "cp", id+":a b.txt", "back.txt")
	ok("", "cp", id+":new folder/a b.txt", "down/")
	ok("", "cp", id+":renamed.txt", ".")
	ok("", "cp", id+":a b.txt", "back.txt") // replaced
	if err := errors.Join(os.MkdirAll("modes/empty", 0o700), os.WriteFile("modes/tool", nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	ok("", "cp", "-r", "modes", id+":")
	ok("", "cp", "-r", id+":modes", "modes back")
	if info, err := os.Stat("modes back/tool"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a program comes back with %v, %v", info, err)
	}
	if entries, err := os.ReadDir("modes back/empty"); err != nil || len(entries) != 0 {
		t.Errorf("an empty folder comes back with %v, %v", entries, err)
	}
	ok("", "cp", "-r", id+":tree", "copy")
	ok("", "cp", "-r", id+":.", "all")
	for name, want := range map[string]string{"back.txt": "text", "down/a b.txt": "text", "renamed.txt": "text", "copy/one": "1", "copy/sub/two é": "2", "all/tree/sub/two é": "2", "all/from/stdin": "piped"} {
		if got := read(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	left, err := filepath.Glob("*.part-*")
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	for name, args := range map[string][]string{
		"no session at all":       {"a b.txt", "c"},
		"two sessions":            {id + ":a", id + ":b"},
		"a folder without -r":     {"tree", id + ":"},
		"out of the work folder":  {"a b.txt", id + ":../x"},
		"from out of it":          {id + ":../../etc/passwd", "x"},
		"what is not there":       {id + ":nothing", "x"},
		"what is not here":        {"nothing", id + ":x"},
		"standard input unnamed":  {"-", id + ":"},
		"an unknown session":      {"a b.txt", "ctx-unknown:x"},
		"a dash and -r":           {"-r", id + ":tree", "-"},
		"a folder over the other": {id + ":tree", "x"},
		"nothing":                 {"", id + ":x"},
	} {
		if o := execute(t, t.Context(), bundle, "in", append([]string{"session", "cp"}, args...)...); o.status != 125 || o.stderr == "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if _, err := os.Stat("x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed download left a file: %v", err)
	}
}

// TestADownloadStaysInItsFolder: names are the program's, and a link that lies in the folder already is not followed.
func TestADownloadStaysInItsFolder(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"link/x", "../x"} {
		if err := replaceFile(root, name, 0o644, strings.NewReader("x")); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := replaceFile(root, "half", 0o644, io.MultiReader(strings.NewReader("x"), failingReader{})); err == nil {
		t.Error("half a file is a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	for name, mode := range map[string]os.FileMode{"program": 0o755, "mine": 0o700, "secret": 0o600, "text": 0o644, "unknown": 0} {
		if err := replaceFile(root, name, mode, strings.NewReader("x")); err != nil {
			t.Error(err)
		}
		want := cmp.Or(mode, 0o666) // of which the umask may take from the group and from others
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&^want != 0 || info.Mode()&0o700 != want&0o700 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestSessionCommandsThatAreRefused(t *testing.T) {
	bundle := withFake(t)
	for args, want := range map[string]string{
		"session nonsense":                                   `unknown command "session nonsense"`,
		"session ls":                                         "session ls needs a server",
		"session new":                                        "session new needs a server",
		"session new --language cobol":                       "--language: must be",
		"session new --python 3.12.1":                        "--python: must be",
		"session new --idle-timeout 0":                       "--idle-timeout: must be > 0",
		"session new --max-life NaN":                         "--max-life: must be > 0",
		"session new --memory 0":                             "--memory: must be > 0",
		"session new --env =x":                               "--env: must be",
		"session new x":                                      "takes no arguments",
		"session run":                                        "needs the id of a session",
		"session run ctx-1":                                  "no code",
		"session run ctx-1 f -c x":                           "-c: must not be given with a file",
		"session run ctx-1 -c x --memory 5":                  "", // needs a server first
		"session run ctx-1 - --stdin -":                      "standard input must be open",
		"session exec":                                       "needs the id of a session",
		"session exec ctx-1":                                 "exec: must have a command after --",
		"session exec ctx-1 ls":                              "needs the id of a session",
		"session exec -i ctx-1 -- ls":                        "-i: must not be given with a command",
		"session exec -i ctx-1 --json":                       "must not be given with --stdin or --json",
		"session rm":                                         "needs the id of a session",
		"session cp a b":                                     "one must be ID:PATH",
		"session cp ctx-1:a":                                 "needs a source and a destination",
		"session install ctx-1":                              "requirements",
		"session files":                                      "needs the id of a session",
		"session vars":                                       "needs the id of a session",
		"session restart --server http://127.0.0.1:1 ctx-1":  "unavailable",
		"session run --server http://127.0.0.1:1 x --disk 5": "whole session",
	} {
		o := execute(t, t.Context(), bundle, "", strings.Fields(args)...)
		if o.status != 125 || o.stdout != "" || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: %+v", args, o)
		}
	}
	o := execute(t, t.Context(), bundle, "", "session", "run", "ctx-1", "-c", "x", "--memory", "5", "--server", "http://127.0.0.1:1")
	if o.status != 125 || !strings.Contains(o.stderr, "whole session") {
		t.Errorf("%+v", o)
	}
	o = execute(t, t.Context(), bundle, "print 1", "session", "run", "ctx-1", "-", "--stdin", "-", "--server", "http://127.0.0.1:1")
	if o.status != 125 || !strings.Contains(o.stderr, "--stdin: must not be - if standard input has the code") {
		t.Errorf("%+v", o)
	}
	for _, args := range [][]string{{"run", "", "-c", "print 1"}, {"exec", "", "--", "ls"}, {"exec", "-i", ""}} {
		if o := execute(t, t.Context(), bundle, "", append([]string{"session"}, args...)...); o != (outcome{125, "", "python-executor: the id of the session must not be empty\n"}) {
			t.Errorf("%q: %+v", args, o)
		}
	}
	if o := execute(t, t.Context(), bundle, "", "session"); o.status != 0 || !strings.Contains(o.stdout, "session new") {
		t.Errorf("%+v", o)
	}
}
