//go:build linux

package runner

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// corpusCell is one cell of a snippet, and what it prints.
type corpusCell struct {
	Snippet string `json:"snippet"`
	Code    string `json:"code"`
	Stdin   string `json:"stdin"`
	// empty: it is to find an end where its standard input is.
	empty bool
	// differs is why a session gives something else than a REPL; then want and wantErr are what.
	differs       string
	want, wantErr string
}

// readCorpus reads one file: see drivers/testdata/corpus/README.md.
func readCorpus(t *testing.T, file string) []corpusCell {
	t.Helper()
	raw, err := os.ReadFile(file) //nolint:gosec // a test's own file
	if err != nil {
		t.Fatal(err)
	}
	var cells []corpusCell
	var name, code string
	open := false
	var last *corpusCell
	finish := func() {
		if open {
			c := corpusCell{Snippet: name, Code: strings.TrimSuffix(code, "\n")}
			if rest, ok := strings.CutPrefix(c.Code, "<<<"); ok {
				first, more, _ := strings.Cut(rest, "\n")
				if c.Code, c.empty = more, first == ""; !c.empty {
					c.Stdin = strings.TrimPrefix(first, " ") + "\n"
				}
			}
			cells = append(cells, c)
			last = &cells[len(cells)-1]
		}
		open, code = false, ""
	}
	for line := range strings.Lines(string(raw)) {
		switch {
		case strings.HasPrefix(line, "=== "):
			finish()
			name, open, last = strings.TrimSpace(line[4:]), true, nil
		case line == "---\n":
			finish()
			open, last = true, nil
		case strings.HasPrefix(line, "!!! "):
			finish()
			last.differs = strings.TrimSpace(line[4:])
		case !open && strings.HasPrefix(line, "out|"):
			last.want += line[4:]
		case !open && strings.HasPrefix(line, "err|"):
			last.wantErr += line[4:]
		case open:
			code += line
		default:
			t.Fatalf("%s: what is %q?", file, line)
		}
	}
	finish()
	return cells
}

// language is how a corpus is replayed.
type corpusLanguage struct {
	start func(t *testing.T) SessionStart
	// repl runs all cells of a file and returns what each of them printed.
	repl func(t *testing.T, cells []corpusCell) (out, err []string)
	// same brings standard errors into the form in which they are compared.
	same func(string) string
}

var corpusLanguages = map[string]corpusLanguage{
	"python": {
		start: func(*testing.T) SessionStart { return pythonSession() },
		repl: func(t *testing.T, cells []corpusCell) ([]string, []string) {
			return byScript(t, cells, "/usr/bin/python3", "python.py")
		},
		same: func(s string) string { return s },
	},
	"javascript": {
		start: func(t *testing.T) SessionStart {
			return SessionStart{
				SessionID: "ctx-test", Language: executor.LanguageJavaScript, Interpreter: []string{needNode(t)}, Path: "/usr/bin:/bin", Limits: limits(),
			}
		},
		repl: func(t *testing.T, cells []corpusCell) ([]string, []string) {
			return byScript(t, cells, needNode(t), "javascript.js")
		},
		same: func(s string) string { first, _, _ := strings.Cut(s, "\n"); return first },
	},
	"shell": {
		start: func(*testing.T) SessionStart { return shellSession("/bin/bash") },
		repl:  byBash,
		same: func(s string) string {
			s = regexp.MustCompile(`(?m)^\++ `).ReplaceAllString(s, "+ ")
			return regexp.MustCompile(`(?m)^(environment|bash|\S*main): (eval: )?(line \d+: )?(eval: )?(line \d+: )?`).ReplaceAllString(strings.TrimLeft(s, "\n"), "bash: ")
		},
	},
}

// place is an empty folder with the environment of a session.
func place(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PS1=", "PS2="}
}

func marked(t *testing.T, cmd *exec.Cmd, n int) (out, err []string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		t.Fatalf("the REPL: %v\n%s\n%s", err, o.String(), e.String())
	}
	out, err = strings.Split(o.String(), "\x1e"), strings.Split(e.String(), "\x1e")
	if len(out) != n+1 || len(err) != n+1 {
		t.Fatalf("the REPL ran %d cells, not %d\n%s\n%s", len(out)-1, n, o.String(), e.String())
	}
	return out, err
}

// byScript runs cells in the script of testdata/reference.
func byScript(t *testing.T, cells []corpusCell, program, script string) (out, err []string) {
	t.Helper()
	cells = slices.Clone(cells)
	for i := range cells {
		if cells[i].differs != "" {
			cells[i].Code = "" // it might end the REPL
		}
	}
	raw, jsonErr := json.Marshal(cells)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	list := filepath.Join(t.TempDir(), "cells")
	if err := os.WriteFile(list, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	path, absErr := filepath.Abs(filepath.Join("drivers/testdata/reference", script))
	if absErr != nil {
		t.Fatal(absErr)
	}
	cmd := exec.Command(program, path, list) //nolint:gosec // a test's own
	place(t, cmd)
	return marked(t, cmd, len(cells))
}

// byBash types cells into an interactive bash. What bash would wait for the rest of is given to it by eval.
func byBash(t *testing.T, cells []corpusCell) (out, err []string) {
	t.Helper()
	script := "printf '\\036'; printf '\\036' >&2\n" // what it says about the terminal it has not
	for _, c := range cells {
		code := c.Code
		check := exec.Command("/bin/bash", "-n")
		check.Stdin = strings.NewReader(code)
		switch {
		case c.differs != "":
			code = ":" // it might end the shell
		case check.Run() != nil:
			code = "eval " + "'" + strings.ReplaceAll(code, "'", `'\''`) + "'"
		case c.Stdin != "":
			code = "{\n" + code + "\n} <<< " + strconv.Quote(strings.TrimSpace(c.Stdin))
		case c.empty:
			code = "{\n" + code + "\n} < /dev/null"
		}
		script += code + "\n__status=$?; printf '\\036'; printf '\\036' >&2; (exit $__status)\n"
	}
	cmd := exec.Command("/bin/bash", "--noprofile", "--norc", "--noediting", "-i")
	place(t, cmd)
	cmd.Env = append(cmd.Env, "HISTFILE=")
	cmd.Stdin = strings.NewReader(script)
	out, err = marked(t, cmd, len(cells)+1)
	return out[1:], err[1:]
}

// TestSnippetsDoWhatTheyDoInAREPL replays the corpus.
func TestSnippetsDoWhatTheyDoInAREPL(t *testing.T) {
	for name, language := range corpusLanguages {
		files, err := filepath.Glob("drivers/testdata/corpus/" + name + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		t.Run(name, func(t *testing.T) {
			snippets := map[string]bool{}
			for _, file := range files {
				cells := readCorpus(t, file)
				for _, c := range cells {
					snippets[file+c.Snippet] = true
				}
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { replay(t, language, cells) })
			}
			if len(snippets) < 60 {
				t.Errorf("%d snippets, at least 60 are wanted", len(snippets))
			}
		})
	}
}

func replay(t *testing.T, language corpusLanguage, cells []corpusCell) {
	start := language.start(t)
	start.Limits.PIDs = 256
	r := openSession(t, start)
	out, errs := language.repl(t, cells)
	for i, c := range cells {
		in := RunInput{}
		if c.Stdin != "" {
			in.Stdin = strings.NewReader(c.Stdin)
		}
		res, rec := r.run(t, cellOf(c.Code), in)
		got := rec.stdout()
		if v := rec.value(); v != "" {
			got += v + "\n"
		}
		want, wantErr := out[i], errs[i]
		if c.differs != "" {
			want, wantErr = c.want, c.wantErr
		}
		if got != want || language.same(rec.stderr()) != language.same(wantErr) || res.SessionState != executor.SessionStateKept {
			t.Errorf("%s (cell %d):\n%s\n--- a session (%s %s):\n%s%s--- wanted (%s):\n%s%s", c.Snippet, i+1, c.Code,
				describe(res), res.SessionState, got, rec.stderr(), c.differs, want, wantErr)
		}
	}
}
