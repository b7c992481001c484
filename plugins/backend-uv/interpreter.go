package uvbackend

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// oldestMinor is the oldest Python 3 minor version that the backend uses.
const oldestMinor = 8

// interpreter is a Python of this machine, as a real file.
type interpreter struct {
	// Path is the real file. It is no shim and no link.
	Path string
	// Version is the full version ("3.12.1"), Minor the exact minor one ("3.12").
	Version string
	Minor   string
	// Platform is sysconfig's name ("linux-x86_64").
	Platform string
	// Implementation is "cpython", "pypy", ….
	Implementation string
	// reach is installation(Path).
	reach []string
}

// unreachable is a Python that programs cannot use, with the reason and the remedy.
type unreachable struct {
	Path    string
	Version string // from the path; may be empty
	Why     string
	Remedy  string
}

// inventory is the result of prober.discover.
type inventory struct {
	// byMinor has one interpreter per minor version.
	byMinor map[string]interpreter
	// fallback runs programs that ask for no version. It is the first usable python3 on PATH, else the newest interpreter.
	fallback    interpreter
	unreachable []unreachable
}

// minors returns the minor versions, newest first.
func (inv inventory) minors() []string {
	var list []string
	for minor := range inv.byMinor {
		list = append(list, minor)
	}
	slices.SortFunc(list, func(a, b string) int { return minorNumber(b) - minorNumber(a) })
	return list
}

// find returns the interpreter of a minor version, or the fallback for "".
func (inv inventory) find(minor string) (interpreter, bool) {
	if minor == "" {
		return inv.fallback, inv.fallback.Path != ""
	}
	i, ok := inv.byMinor[minor]
	return i, ok
}

// hint returns the end of an error message that names an unreachable Python of version minor and its remedy, or "".
func (inv inventory) hint(minor string) string {
	for _, u := range inv.unreachable {
		if u.Version == minor || strings.HasPrefix(u.Version, minor+".") {
			return fmt.Sprintf("; %s cannot be used: %s (%s)", u.Path, u.Why, u.Remedy)
		}
	}
	return ""
}

func minorNumber(minor string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(minor, "3."))
	return n
}

// key identifies the interpreter in an environment's key.
func (i interpreter) key() string {
	return strings.Join([]string{i.Path, i.Version, i.Platform, i.Implementation}, "\x00")
}

// alias returns a folder below root in which python, python3 and python3.x are this interpreter, so that all three names work on a
// program's PATH. It creates the folder once.
func (i interpreter) alias(root string) (string, error) {
	sum := sha256.Sum256([]byte(i.key()))
	dir := filepath.Join(root, i.Minor+"-"+hex.EncodeToString(sum[:6]))
	if target, err := os.Readlink(filepath.Join(dir, "python3")); err == nil && target == i.Path {
		return dir, nil
	}
	temp, err := os.MkdirTemp(root, ".tmp-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	for _, name := range []string{"python", "python3", "python" + i.Minor} {
		if err := os.Symlink(i.Path, filepath.Join(temp, name)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(temp, 0o755); err != nil { //nolint:gosec // programs read it
		return "", err
	}
	if err := os.Rename(temp, dir); err != nil {
		// Another process may have created the folder.
		if target, err := os.Readlink(filepath.Join(dir, "python3")); err == nil && target == i.Path {
			return dir, nil
		}
		return "", err
	}
	return dir, nil
}

// candidate is a file that may be a Python.
type candidate struct {
	// path is the file as it was found. real is the file that the links of path lead to, or path for a shim.
	path, real string
	// shim reports whether the file is a script that executes an interpreter. Only the script can tell which.
	shim bool
	// onPath is the index of the candidate's folder in PATH if its name is python3, else -1.
	onPath int
}

// newestMinor is beyond the minor versions of Python that there will be.
const newestMinor = 40

// pythonNames lists the names of interpreters. python3 comes first, because it is the user's choice for programs that name no version.
// The newest follows. A folder of PATH has thousands of files, so a search tries these names.
func pythonNames() []string {
	names := []string{"python3"}
	for minor := newestMinor; minor >= oldestMinor; minor-- {
		names = append(names, "python3."+strconv.Itoa(minor))
	}
	return names
}

// places has the settings that name the folders to search for interpreters.
type places struct {
	path string // of the host
	home string
	env  func(string) string
	// own is the folder of downloaded interpreters, or "".
	own string
}

func hostPlaces() places {
	return places{path: cmp.Or(os.Getenv("PATH"), defaultPath), home: homeDir(), env: os.Getenv}
}

// folders lists the folders in order of preference, without duplicates. The first n are those of PATH.
func (p places) folders() (list []string, n int) {
	seen := map[string]bool{}
	add := func(dirs ...string) {
		for _, d := range dirs {
			if d = filepath.Clean(d); filepath.IsAbs(d) && !seen[d] {
				seen[d] = true
				list = append(list, d)
			}
		}
	}
	add(filepath.SplitList(p.path)...)
	n = len(list)
	glob := func(pattern string) {
		found, _ := filepath.Glob(pattern)
		slices.Sort(found)
		slices.Reverse(found)
		add(found...)
	}
	for _, root := range []string{p.env("PYENV_ROOT"), below(p.home, ".pyenv")} {
		if filepath.IsAbs(root) {
			glob(filepath.Join(root, "versions/*/bin"))
		}
	}
	for _, root := range []string{p.env("UV_PYTHON_INSTALL_DIR"), below(p.env("XDG_DATA_HOME"), "uv/python"), below(p.home, ".local/share/uv/python")} {
		if filepath.IsAbs(root) {
			glob(filepath.Join(root, "*/bin"))
		}
	}
	add("/usr/local/bin", "/usr/bin")
	if p.own != "" {
		glob(filepath.Join(p.own, pythonLinks, "bin"))
	}
	return list, n
}

func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// candidates lists every file that may be a Python, without duplicates, in order of preference.
func (p places) candidates() []candidate {
	folders, onPath := p.folders()
	names := pythonNames()
	var list []candidate
	seen := map[string]bool{}
	for n, dir := range folders {
		folder, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		present := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return unix.Faccessat(folder, name, unix.F_OK, 0) != nil })
		_ = unix.Close(folder) // it has no error of its own
		for _, name := range present {
			c := candidate{path: filepath.Join(dir, name), onPath: -1}
			if n < onPath && name == "python3" {
				c.onPath = n
			}
			real, err := filepath.EvalSymlinks(c.path)
			if err != nil {
				continue
			}
			c.real = real
			c.shim = isScript(real)
			if c.shim && p.pyenv(dir) {
				if name != "python3" || c.onPath < 0 {
					continue // the search finds the shim's interpreters in their own folders
				}
				if c.real = p.pyenvPython(filepath.Dir(dir)); c.real == "" {
					continue // the shim stands for a later python3 of PATH
				}
				c.shim = false
			}
			if c.shim {
				c.real = c.path // a shim depends on the name by which it is called
				if name != "python3" || c.onPath < 0 {
					continue // the search finds the shim's interpreters in their own folders
				}
			}
			if seen[c.real] {
				if c.onPath >= 0 {
					i := slices.IndexFunc(list, func(o candidate) bool { return o.real == c.real })
					if list[i].onPath < 0 {
						list[i].onPath = c.onPath
					}
				}
				continue
			}
			seen[c.real] = true
			list = append(list, c)
		}
	}
	return list
}

// pyenv reports whether dir is a folder of pyenv's shims.
func (p places) pyenv(dir string) bool {
	info, err := os.Stat(filepath.Join(filepath.Dir(dir), "versions"))
	return filepath.Base(dir) == "shims" && err == nil && info.IsDir()
}

// pyenvPython returns the python3 that pyenv's shim starts, outside of folders with a .python-version, as a real file. It returns ""
// if that is no Python of pyenv's own. It starts no process.
func (p places) pyenvPython(root string) string {
	chosen := p.env("PYENV_VERSION")
	if chosen == "" {
		raw, _ := os.ReadFile(filepath.Join(root, "version")) // without the file pyenv chooses "system"
		chosen = string(raw)
	}
	for _, version := range strings.FieldsFunc(chosen, func(r rune) bool { return r == ':' || r == '\n' || r == ' ' || r == '\r' }) {
		if version == "system" {
			return ""
		}
		real, err := filepath.EvalSymlinks(filepath.Join(root, "versions", version, "bin", "python3"))
		if err == nil && !isScript(real) {
			return real
		}
	}
	return ""
}

// isScript reports whether the file at path begins with "#!".
func isScript(path string) bool {
	f, err := os.Open(path) //nolint:gosec // the first two bytes of what PATH and pyenv name
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = f.ReadAt(head[:], 0)
	return err == nil && string(head[:]) == "#!"
}

// stamp returns a hash that changes when the answer of c to uid may change. It covers the file, the settings of a shim, and the
// modes and owners of the folders above.
func (c candidate) stamp(uid string) string {
	var st unix.Stat_t
	if err := unix.Stat(c.real, &st); err != nil {
		return ""
	}
	parts := []string{c.real, uid, strconv.FormatInt(st.Size, 10), strconv.FormatInt(st.Mtim.Nano(), 10), strconv.FormatInt(st.Ctim.Nano(), 10)}
	for dir := filepath.Dir(c.real); ; dir = filepath.Dir(dir) {
		if err := unix.Stat(dir, &st); err == nil {
			parts = append(parts, fmt.Sprintf("%o.%d", st.Mode, st.Uid))
		}
		if dir == "/" {
			break
		}
	}
	if c.shim {
		told, _ := os.ReadFile(filepath.Join(filepath.Dir(c.real), "..", "version"))
		parts = append(parts, string(told))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

var versionInPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`3\.[0-9]+(\.[0-9]+)?`) })

// guess returns the version in an interpreter's path, or "". It serves findings about interpreters that cannot be asked.
func guess(path string) string {
	all := versionInPath().FindAllString(path, -1)
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	if len(all) == 0 {
		return ""
	}
	return all[0]
}
