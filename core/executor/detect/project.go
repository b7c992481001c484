package detect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// maxProjectFile bounds the files that Project reads.
const maxProjectFile = 16 << 20

// maxConditions bounds the conditions that are kept for a package, and maxCondition the bytes of each. Beyond these bounds the
// package is required without a condition.
const (
	maxConditions = 8
	maxCondition  = 4 << 10
)

// Dependencies are the packages that a project's files ask for.
type Dependencies struct {
	// Requirements is text in requirements.txt form; empty: none.
	Requirements string
	// Locked reports whether Requirements are the exact versions of uv.lock.
	Locked bool
}

// Project reads the dependencies of the project in the folder fsys: those of uv.lock, else those in [project] of
// pyproject.toml. Development groups and optional extras are left out. Without either file it returns no dependencies and no
// error. An error tells what in a file is invalid or cannot be installed on another machine.
func Project(fsys fs.FS) (Dependencies, error) {
	raw, err := readBounded(fsys, "uv.lock")
	if err == nil {
		d, err := locked(raw)
		if err != nil {
			return d, fmt.Errorf("uv.lock: %w", err)
		}
		return d, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Dependencies{}, err
	}
	raw, err = readBounded(fsys, "pyproject.toml")
	if errors.Is(err, fs.ErrNotExist) {
		return Dependencies{}, nil
	}
	if err != nil {
		return Dependencies{}, err
	}
	var project struct {
		Project struct {
			Dependencies []string `toml:"dependencies"`
		} `toml:"project"`
	}
	if err := decodeTOML(raw, maxProjectBrackets, &project); err != nil {
		return Dependencies{}, fmt.Errorf("pyproject.toml: %w", err)
	}
	for _, line := range project.Project.Dependencies {
		if strings.ContainsAny(line, "\r\n") {
			return Dependencies{}, fmt.Errorf("pyproject.toml: project.dependencies: must be one requirement per entry (got %q)", line)
		}
	}
	return Dependencies{Requirements: strings.Join(project.Project.Dependencies, "\n")}, nil
}

func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxProjectFile+1))
	if err == nil && len(raw) > maxProjectFile {
		err = fmt.Errorf("%s: more than %d bytes", name, maxProjectFile)
	}
	return raw, err
}

// lock is the part of uv.lock that this package reads, in version 1 of uv's format.
type lock struct {
	Version  int           `toml:"version"`
	Packages []lockPackage `toml:"package"`
}

type lockPackage struct {
	Name     string                `toml:"name"`
	Version  string                `toml:"version"`
	Source   lockSource            `toml:"source"`
	Needs    []lockNeed            `toml:"dependencies"`
	Optional map[string][]lockNeed `toml:"optional-dependencies"`
}

type lockSource struct {
	Registry  string `toml:"registry"`
	URL       string `toml:"url"`
	Git       string `toml:"git"`
	Path      string `toml:"path"`
	Directory string `toml:"directory"`
	Editable  string `toml:"editable"`
	Virtual   string `toml:"virtual"`
}

// own reports whether the package is the project itself.
func (s lockSource) own() bool { return s.Editable == "." || s.Virtual == "." }

// lockNeed is a dependency of a package. Marker is the condition of the dependency; empty: none.
type lockNeed struct {
	Name    string   `toml:"name"`
	Version string   `toml:"version"`
	Marker  string   `toml:"marker"`
	Extra   []string `toml:"extra"`
}

// locked turns a lock into pinned requirements: all direct and indirect dependencies of the project, each with its conditions.
func locked(raw []byte) (Dependencies, error) {
	var l lock
	if err := decodeTOML(raw, maxProjectBrackets, &l); err != nil {
		return Dependencies{}, err
	}
	if l.Version != 1 {
		return Dependencies{}, fmt.Errorf("unknown version %d (must be 1)", l.Version)
	}
	root := slices.IndexFunc(l.Packages, func(p lockPackage) bool { return p.Source.own() })
	if root < 0 {
		return Dependencies{}, errors.New("must have a package that is the project itself")
	}
	w := lockWalk{lock: l, when: map[int][]string{}, gone: map[step]bool{}}
	for _, need := range l.Packages[root].Needs {
		if err := w.visit(need, ""); err != nil {
			return Dependencies{}, err
		}
	}
	var lines []string
	for i, conditions := range w.when {
		line, err := l.Packages[i].requirement()
		if err != nil {
			return Dependencies{}, err
		}
		if !slices.Contains(conditions, "") {
			slices.Sort(conditions)
			line += " ; " + strings.Join(conditions, " or ")
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return Dependencies{Requirements: strings.Join(lines, "\n"), Locked: true}, nil
}

func (p lockPackage) requirement() (string, error) {
	switch {
	case p.Source.Registry != "" && p.Version != "":
		return p.Name + "==" + p.Version, nil
	case p.Source.URL != "":
		return p.Name + " @ " + p.Source.URL, nil
	case p.Source.Git != "":
		url, commit, _ := strings.Cut(p.Source.Git, "#")
		url, _, _ = strings.Cut(url, "?")
		return p.Name + " @ git+" + url + "@" + commit, nil
	}
	return "", fmt.Errorf("%s comes from a folder of this machine, which cannot be installed in a sandbox", p.Name)
}

// lockWalk collects the conditions under which each package is needed.
type lockWalk struct {
	lock lock
	when map[int][]string // by index in lock.Packages; a condition "" means always
	// gone holds the steps that were taken.
	gone map[step]bool
}

// step follows the dependencies of a package (extra "") or of one of its extras, under a condition.
type step struct {
	pkg              int
	extra, condition string
}

func (w *lockWalk) visit(need lockNeed, condition string) error {
	i := w.find(need)
	if i < 0 {
		return fmt.Errorf("%s is needed, but has no entry: run uv lock", need.Name)
	}
	condition = w.note(i, both(condition, need.Marker))
	for _, extra := range append([]string{""}, need.Extra...) {
		s := step{i, extra, condition}
		if w.gone[s] {
			continue
		}
		w.gone[s] = true
		edges := w.lock.Packages[i].Needs
		if extra != "" {
			edges = w.lock.Packages[i].Optional[extra]
		}
		for _, edge := range edges {
			if err := w.visit(edge, condition); err != nil {
				return err
			}
		}
	}
	return nil
}

// note records that package i is needed under condition. It returns condition, or "" if the package is always needed.
func (w *lockWalk) note(i int, condition string) string {
	known := w.when[i]
	switch {
	case slices.Contains(known, ""):
		return ""
	case condition == "" || len(known) >= maxConditions || len(condition) > maxCondition:
		w.when[i] = []string{""}
		return ""
	case !slices.Contains(known, condition):
		w.when[i] = append(known, condition)
	}
	return condition
}

// find returns the index of the package that need names, or -1. If a lock has several versions of a package, need tells the
// version.
func (w *lockWalk) find(need lockNeed) int {
	return slices.IndexFunc(w.lock.Packages, func(p lockPackage) bool {
		return p.Name == need.Name && (need.Version == "" || p.Version == need.Version)
	})
}

// both returns the condition that both a and b hold.
func both(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return "(" + a + ") and (" + b + ")"
}
