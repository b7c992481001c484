package faults

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one change of one operator.
type Mutant struct {
	File         string // relative to the root of the workspace
	Line, Column int    // of the operator, from 1; columns count bytes
	Kind         string // gremlins' name of the kind
	From, To     string // the operator, and what takes its place
	order        uint64 // by Sample
}

func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s %s → %s", m.File, m.Line, m.Column, m.Kind, m.From, m.To)
}

// kinds are gremlins' kinds that we use, with its flag for those that are off by default, and its replacements.
var kinds = map[string]struct {
	flag    string
	replace map[string]string
}{
	"ARITHMETIC_BASE":       {"", map[string]string{"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}},
	"CONDITIONALS_BOUNDARY": {"", map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}},
	"CONDITIONALS_NEGATION": {"", map[string]string{"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}},
	"INCREMENT_DECREMENT":   {"", map[string]string{"++": "--", "--": "++"}},
	"INVERT_NEGATIVES":      {"", map[string]string{"-": "+"}},
	"INVERT_LOGICAL":        {"--invert-logical", map[string]string{"&&": "||", "||": "&&"}},
	"INVERT_LOOPCTRL":       {"--invert-loopctrl", map[string]string{"break": "continue", "continue": "break"}},
}

// mutable are the folders whose code is mutated.
var mutable = []string{"core/", "plugins/", "frontends/http/", "cli/", "sdk/go/"}

// isMutable reports whether a file is product code for this system: no test, no helper or suite of tests, and not generated.
func isMutable(root, name string) bool {
	inside := slices.ContainsFunc(mutable, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	if !inside || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return false
	}
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		if base := path.Base(folder); base == "fake" || base == "testdata" || strings.HasSuffix(base, "test") {
			return false
		}
	}
	matches, err := build.Default.MatchFile(filepath.Join(root, path.Dir(name)), path.Base(name))
	if err != nil || !matches {
		return false
	}
	data, err := os.ReadFile(filepath.Join(root, name))
	return err == nil && !strings.Contains(string(data[:min(len(data), 400)]), "// Code generated ")
}

// List has gremlins, whose binary is given, find the mutants of a workspace. gremlins finds mutants in all Go files below a module, but
// runs the module's tests first, for their coverage, and copies a module away from its siblings to run a mutant. So it gets a module
// without packages, with our code in a folder that Go does not look into; Runner runs the mutants.
func (w *Workspace) List(ctx context.Context, gremlins string) ([]Mutant, error) {
	scratch, err := os.MkdirTemp("", "pyexec-mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	write := func(name string, content []byte) error {
		to := filepath.Join(scratch, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600) //nolint:gosec // below a folder of our own
	}
	files, err := w.mutable()
	if err == nil {
		err = errors.Join(write("go.mod", []byte("module scratch\n\ngo 1.26\n")), write("scratch.go", []byte("package scratch\n")))
	}
	for _, name := range files {
		var data []byte
		if err == nil {
			data, err = os.ReadFile(filepath.Join(w.Root, name))
		}
		if err == nil {
			err = write(filepath.Join("_code", name), data)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("copy the code for gremlins: %w", err)
	}
	args := []string{"unleash", "--dry-run", "--silent", "--output", "found.json"}
	for _, kind := range kinds {
		if kind.flag != "" {
			args = append(args, kind.flag)
		}
	}
	run := exec.CommandContext(ctx, gremlins, append(args, ".")...)
	run.Dir = scratch
	run.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := run.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins: %w: %s", err, tail(out))
	}
	found, err := os.ReadFile(filepath.Join(scratch, "found.json"))
	if err != nil {
		return nil, fmt.Errorf("gremlins: %w", err)
	}
	return w.parse(found)
}

// mutable lists the files that are mutated.
func (w *Workspace) mutable() (files []string, err error) {
	err = filepath.WalkDir(w.Root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(w.Root, path)
		if err == nil && isMutable(w.Root, filepath.ToSlash(name)) {
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	return files, err
}

// parse reads gremlins' report.
func (w *Workspace) parse(report []byte) ([]Mutant, error) {
	var found struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string
				Line, Column int
			}
		}
	}
	if err := json.Unmarshal(report, &found); err != nil {
		return nil, fmt.Errorf("gremlins' report: %w", err)
	}
	var list []Mutant
	for _, file := range found.Files {
		name := strings.TrimPrefix(file.Name, "_code/")
		data, err := os.ReadFile(filepath.Join(w.Root, name))
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{} // a subtraction is found as ARITHMETIC_BASE and as INVERT_NEGATIVES
		for _, mutation := range file.Mutations {
			m := Mutant{File: name, Line: mutation.Line, Column: mutation.Column, Kind: mutation.Type}
			at, ok := offset(data, m.Line, m.Column)
			if !ok {
				return nil, fmt.Errorf("%s:%d:%d is not in the file", name, m.Line, m.Column)
			}
			m.From = operatorAt(data[at:], m.Kind)
			m.To = kinds[m.Kind].replace[m.From]
			key := fmt.Sprint(at, m.To)
			if m.To == "" || seen[key] || joinsStrings(data, at, m.From) {
				continue
			}
			seen[key] = true
			list = append(list, m)
		}
	}
	return list, nil
}

// operatorAt is the longest operator of a kind at the beginning of code; "" if there is none.
func operatorAt(code []byte, kind string) (found string) {
	for operator := range kinds[kind].replace {
		if len(operator) > len(found) && strings.HasPrefix(string(code[:min(len(code), 16)]), operator) {
			found = operator
		}
	}
	return found
}

// joinsStrings reports whether an addition has a literal string beside it: a subtraction would not compile.
func joinsStrings(code []byte, at int, operator string) bool {
	if operator != "+" {
		return false
	}
	before := strings.TrimRight(string(code[:at]), " ")
	after := strings.TrimLeft(string(code[at+1:]), " \t\n")
	return strings.HasSuffix(before, `"`) || strings.HasSuffix(before, "`") || strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "`")
}

// offset is the place of a line and a column, both from 1.
func offset(data []byte, line, column int) (at int, ok bool) {
	for ; line > 1; line-- {
		end := slices.Index(data[at:], '\n')
		if end < 0 {
			return 0, false
		}
		at += end + 1
	}
	at += column - 1
	return at, at < len(data)
}

// Put writes a mutant into the copy. undo takes the file back to what it was.
func (w *Workspace) Put(m Mutant) (undo func() error, err error) {
	data, err := os.ReadFile(filepath.Join(w.Root, m.File))
	if err != nil {
		return nil, err
	}
	at, ok := offset(data, m.Line, m.Column)
	if !ok || !strings.HasPrefix(string(data[at:]), m.From) {
		return nil, fmt.Errorf("%s is not there", m)
	}
	return w.Write(m.File, slices.Concat(data[:at], []byte(m.To), data[at+len(m.From):]))
}

// Shuffle puts mutants into an order that only the seed and their code decide, and not their places: after a change of the tree a sample
// with the same seed has the same mutants, but for those of the changed lines.
func (w *Workspace) Shuffle(list []Mutant, seed uint64) error {
	lines := map[string][]string{}
	times := map[string]int{}
	for i := range list {
		m := &list[i]
		if lines[m.File] == nil {
			data, err := os.ReadFile(filepath.Join(w.Root, m.File))
			if err != nil {
				return err
			}
			lines[m.File] = strings.Split(string(data), "\n")
		}
		key := fmt.Sprintf("%d\x00%s\x00%s\x00%s\x00%s", seed, m.File, m.Kind, m.From, strings.TrimSpace(lines[m.File][m.Line-1]))
		times[key]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", key, times[key]))
		m.order = binary.BigEndian.Uint64(sum[:])
	}
	slices.SortFunc(list, func(a, b Mutant) int {
		switch {
		case a.order < b.order:
			return -1
		case a.order > b.order:
			return 1
		}
		return strings.Compare(a.String(), b.String())
	})
	return nil
}
