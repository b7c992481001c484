package detect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The files of a folder that tell its requirements, the first one first.
const (
	requirementsName = "requirements.txt"
	lockName         = "uv.lock"
	projectName      = "pyproject.toml"
)

var projectFiles = []string{requirementsName, lockName, projectName}

// maxConditions bounds the conditions that are kept for a package, maxCondition the bytes of each, and maxConditionBytes the bytes of
// all. Beyond these bounds a package is required without a condition.
const (
	maxConditions     = 8
	maxCondition      = 4 << 10
	maxConditionBytes = 1 << 20
)

// Folder finds what a program in the folder fsys requires, by the rule of Tar. program is the text of the program and name its name
// in errors; nil: only the files of the folder count. An *Error means that a file is invalid.
func Folder(fsys fs.FS, name string, program []byte) (Found, error) {
	files := map[string][]byte{}
	for _, file := range projectFiles {
		text, err := readBounded(fsys, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return Found{}, err
		default:
			files[file] = text
		}
	}
	f := Found{}
	return f, f.require(name, program, files)
}

// readBounded reads at most one byte more than an accepted file may have.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// require sets the requirements and the Python version of f. The first of these that exists tells the requirements: the dependencies in
// the program's block, requirements.txt, uv.lock, pyproject.toml. Never two of them.
func (f *Found) require(name string, program []byte, files map[string][]byte) error {
	script, ok, err := ParseScript(program[:min(len(program), maxFile)])
	if err == nil && script.RequiresPython != "" && !ValidSpecifier(script.RequiresPython) {
		err = fmt.Errorf("script metadata: %w", specifierError(script.RequiresPython))
	}
	if err != nil {
		return &Error{File: name, Err: err}
	}
	f.PythonVersion = script.RequiresPython
	if ok && script.Dependencies != nil {
		f.Requirements = script.Requirements()
		return nil
	}
	for _, file := range projectFiles {
		if len(files[file]) > maxFile {
			return &Error{File: file, Err: fmt.Errorf("must have at most %d bytes", maxFile)}
		}
		text, there := files[file]
		if !there {
			continue
		}
		decoded, err := Text(text)
		if err != nil {
			return &Error{File: file, Err: err}
		}
		if file == requirementsName {
			f.Requirements = decoded
			return nil
		}
		p, err := readProject(file, []byte(decoded))
		if errors.Is(err, errOtherPlatform) && files[projectName] != nil {
			continue
		}
		if err == nil && p.requiresPython != "" && !ValidSpecifier(p.requiresPython) {
			err = specifierError(p.requiresPython)
		}
		if err != nil {
			return &Error{File: file, Err: err}
		}
		f.Requirements = p.requirements
		if f.PythonVersion == "" {
			f.PythonVersion = p.requiresPython
		}
		return nil
	}
	return nil
}

func specifierError(text string) error {
	return fmt.Errorf("requires-python: must be a version specifier, such as >=3.11 (got %.100q)", text)
}

// project is what uv.lock or pyproject.toml tells.
type project struct {
	requirements, requiresPython string
}

func readProject(file string, text []byte) (project, error) {
	if file == lockName {
		return locked(text)
	}
	return listed(text)
}

// listed reads the dependencies in [project] of a pyproject.toml. Development groups and optional extras are left out. A file without
// [project], such as one with the settings of tools, has none.
func listed(text []byte) (project, error) {
	var file struct {
		Project struct {
			Dependencies   []string `toml:"dependencies"`
			RequiresPython string   `toml:"requires-python"`
		} `toml:"project"`
		Tool tools `toml:"tool"`
	}
	if err := decodeTOML(text, maxProjectBrackets, &file); err != nil {
		return project{}, err
	}
	lines, err := file.Tool.specifiers("project.dependencies", file.Project.Dependencies, ", or be locked in uv.lock")
	if err != nil {
		return project{}, err
	}
	return project{requirementsText(lines), strings.TrimSpace(file.Project.RequiresPython)}, nil
}

// lock is the part of uv.lock that this package reads, in version 1 of uv's format.
type lock struct {
	Version        int           `toml:"version"`
	RequiresPython string        `toml:"requires-python"`
	Supported      []string      `toml:"supported-markers"`
	Packages       []lockPackage `toml:"package"`
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

// errOtherPlatform means that a lock does not hold on Linux, where sandboxes run. The dependencies of pyproject.toml then count.
var errOtherPlatform = errors.New("must support Linux: add it to tool.uv.environments, or add a pyproject.toml or a requirements.txt")

// locked turns a lock into pinned requirements: all direct and indirect dependencies of the project, each with its conditions.
func locked(text []byte) (project, error) {
	var l lock
	if err := decodeTOML(text, maxProjectBrackets, &l); err != nil {
		return project{}, err
	}
	if l.Version != 1 {
		return project{}, fmt.Errorf("unknown version %d (must be 1)", l.Version)
	}
	if len(l.Supported) > 0 && !slices.ContainsFunc(l.Supported, mayHoldOnLinux) {
		return project{}, errOtherPlatform
	}
	root := slices.IndexFunc(l.Packages, func(p lockPackage) bool { return p.Source.own() })
	if root < 0 {
		return project{}, errors.New("must have a package that is the project itself")
	}
	w := lockWalk{lock: l, named: map[string][]int{}, when: map[int][]string{}, gone: map[step]bool{}}
	for i, p := range l.Packages {
		w.named[p.Name] = append(w.named[p.Name], i)
	}
	for _, need := range l.Packages[root].Needs {
		if err := w.visit(need, ""); err != nil {
			return project{}, err
		}
	}
	var lines []string
	for i, conditions := range w.when {
		if i == root { // an extra of the project itself
			continue
		}
		line, err := l.Packages[i].requirement()
		if err != nil {
			return project{}, err
		}
		if !slices.Contains(conditions, "") {
			slices.Sort(conditions)
			line += " ; " + strings.Join(conditions, " or ")
		}
		if !isSpecifier(line) {
			return project{}, fmt.Errorf("%.100q: must be a package of uv's form", l.Packages[i].Name)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return project{requirementsText(lines), strings.TrimSpace(l.RequiresPython)}, nil
}

// systems holds the values on Linux of the variables of markers that tell the operating system.
var systems = map[string]string{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}

var systemForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(sys_platform|platform_system|os_name) *(==|!=) *['"]([^'"]*)['"]$`)
})

// mayHoldOnLinux reports whether a marker may hold on Linux. It knows comparisons of the operating system; any other may hold. Without
// its brackets a marker without "not" holds at least where it did before.
func mayHoldOnLinux(marker string) bool {
	marker = strings.NewReplacer("(", " ", ")", " ").Replace(marker)
	return slices.ContainsFunc(strings.Split(marker, " or "), func(all string) bool {
		return !slices.ContainsFunc(strings.Split(all, " and "), func(one string) bool {
			m := systemForm().FindStringSubmatch(strings.TrimSpace(one))
			return m != nil && (systems[m[1]] == m[3]) != (m[2] == "==")
		})
	})
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
	return "", fmt.Errorf("%s: must come from a package index, a URL or git, because a sandbox cannot install a local folder or file", p.Name)
}

// lockWalk collects the conditions under which each package is needed.
type lockWalk struct {
	lock  lock
	named map[string][]int // the indexes in lock.Packages of each name
	when  map[int][]string // by index in lock.Packages; a condition "" means always
	// bytes is the length of all conditions in when.
	bytes int
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
	case condition == "" || len(known) >= maxConditions || len(condition) > maxCondition || w.bytes+len(condition) > maxConditionBytes:
		w.when[i] = []string{""}
		return ""
	case !slices.Contains(known, condition):
		w.when[i] = append(known, condition)
		w.bytes += len(condition)
	}
	return condition
}

// find returns the index of the package that need names, or -1. If a lock has several versions of a package, need tells the
// version.
func (w *lockWalk) find(need lockNeed) int {
	for _, i := range w.named[need.Name] {
		if need.Version == "" || w.lock.Packages[i].Version == need.Version {
			return i
		}
	}
	return -1
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
