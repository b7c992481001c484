//go:build linux

package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// fidelityScript is a program of testdata/fidelity, whose README.md describes the format.
type fidelityScript struct {
	name    string
	args    []string
	options []string
	env     map[string]string
	stdin   *string
	entry   string
	files   []fidelityFile
	from    int // the minor version
	once    bool
	// fresh is why only a fresh interpreter can run it, or "".
	fresh string
}

type fidelityFile struct{ name, text string }

// readFidelity returns the scripts of one subject.
func readFidelity(t *testing.T, file string) []*fidelityScript {
	t.Helper()
	raw, err := os.ReadFile(file) //nolint:gosec // a test's own file
	must(t, err)
	var all []*fidelityScript
	var text *strings.Builder
	var finish []func()
	for line := range strings.Lines(string(raw)) {
		rest, ok := strings.CutPrefix(line, "#: ")
		if !ok {
			if text == nil {
				s := all[len(all)-1]
				text = s.begin(&finish, s.entry)
			}
			text.WriteString(line)
			continue
		}
		word, value, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
		if word == "script" {
			all, text = append(all, &fidelityScript{name: value, entry: "main.py", env: map[string]string{}}), nil
			continue
		}
		s := all[len(all)-1]
		if word == "file" {
			if text == nil && len(s.files) == 0 {
				t.Fatalf("%s: %s: the first file must come first", file, s.name)
			}
			text = s.begin(&finish, value)
		} else if err := s.set(word, value); err != nil {
			t.Fatalf("%s: %s: %q: %v", file, s.name, line, err)
		}
	}
	for _, f := range finish {
		f()
	}
	return all
}

// begin adds a file, whose text is complete when finish is called.
func (s *fidelityScript) begin(finish *[]func(), name string) *strings.Builder {
	i, text := len(s.files), &strings.Builder{}
	s.files = append(s.files, fidelityFile{name: filepath.Clean(name)})
	*finish = append(*finish, func() { s.files[i].text = text.String() })
	return text
}

func (s *fidelityScript) set(word, value string) error {
	var err error
	switch word {
	case "args":
		err = json.Unmarshal([]byte(value), &s.args)
	case "options":
		s.options, s.fresh = strings.Fields(value), "options"
	case "env":
		name, v, _ := strings.Cut(value, "=")
		s.env[name] = v
	case "stdin":
		var text string
		text, err = strconv.Unquote(value)
		s.stdin = &text
	case "entry":
		s.entry = value
	case "from":
		_, err = fmt.Sscanf(value, "3.%d", &s.from)
	case "once":
		s.once = true
	case "exec":
		s.fresh = value
	case "raw":
		name, quoted, _ := strings.Cut(value, " ")
		var text string
		text, err = strconv.Unquote(quoted)
		s.files = append(s.files, fidelityFile{name, text})
	default:
		err = fmt.Errorf("unknown word %q", word)
	}
	return err
}

// start is what runs s.
func (s *fidelityScript) start(python string) Start {
	return Start{
		ExecutionID: "exe_test", Interpreter: slices.Concat([]string{python}, s.options), Entrypoint: s.entry, Args: s.args, Env: s.env,
		Path: "/usr/bin:/bin", Limits: limits(), Outputs: []string{"**"}, Workspace: true, Stdin: s.stdin != nil,
	}
}

// workspace is the tar of its files. The folders come first.
func (s *fidelityScript) workspace(t *testing.T) tarball {
	t.Helper()
	var entries []entry
	made := map[string]bool{".": true}
	for _, f := range s.files {
		var folders []entry
		for d := filepath.Dir(f.name); !made[d]; d = filepath.Dir(d) {
			made[d] = true
			folders = append(folders, dir(d))
		}
		slices.Reverse(folders)
		entries = append(append(entries, folders...), file(f.name, f.text))
	}
	return makeTar(t, entries...)
}

// outcome is all that a user sees of a script that has run.
type outcome struct {
	end, stdout, stderr string
	// files has the content and the mode of each regular file that is left.
	files map[string]string
	how   executor.StartKind
	// refused says that this way did not run it, because only a fresh interpreter does it right.
	refused bool
}

// difference says where b is another outcome than o, or "".
func (o outcome) difference(b outcome) string {
	var all []string
	show := func(what, x, y string) {
		if x != y {
			all = append(all, fmt.Sprintf("%s:\n%s", what, differentLines(x, y)))
		}
	}
	show("end", o.end, b.end)
	show("stdout", o.stdout, b.stdout)
	show("stderr", o.stderr, b.stderr)
	names := map[string]bool{}
	for _, files := range []map[string]string{o.files, b.files} {
		for name := range files {
			names[name] = true
		}
	}
	for name := range names {
		x, inA := o.files[name]
		y, inB := b.files[name]
		if inA != inB {
			all = append(all, fmt.Sprintf("file %s: there %t, %t", name, inA, inB))
		}
		if inA && inB {
			show("file "+name, x, y)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// differentLines shows the lines of a and b from the first to the last that differ.
func differentLines(a, b string) string {
	x, y := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	for len(x) > 1 && len(y) > 1 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 1 && len(y) > 1 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	return fmt.Sprintf("  - %.2000q\n  + %.2000q", strings.Join(x, ""), strings.Join(y, ""))
}
