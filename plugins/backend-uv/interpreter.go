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

	"golang.org/x/sys/unix"
)

// oldestMinor is the oldest Python 3 minor version that is used.
const oldestMinor = 8

// interpreter is a Python of this machine, as a real file.
type interpreter struct {
	// Path is the real file, no shim and no link.
	Path string
	// Version is the full version ("3.12.1"), Minor the exact minor one ("3.12").
	Version string
	Minor   string
	// Platform is sysconfig's name ("linux-x86_64").
	Platform string
	// Implementation is "cpython", "pypy", ….
	Implementation string
}

// unreachable is a Python that programs cannot use.
type unreachable struct {
	Path    string
	Version string // as far as the path tells
	Why     string
	Remedy  string
}

// inventory is what discovery found.
type inventory struct {
	// byMinor holds one interpreter per minor version.
	byMinor map[string]interpreter
	// fallback runs what asks for no version: the first python3 on PATH that can be reached, else the newest.
	fallback    interpreter
	unreachable []unreachable
}

// minors returns the versions at hand, newest first.
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

// hint says what would make minor available, if it is only out of reach.
func (inv inventory) hint(minor string) string {
	for _, u := range inv.unreachable {
		if u.Version == minor || strings.HasPrefix(u.Version, minor+".") {
			return fmt.Sprintf("; %s is out of reach: %s (%s)", u.Path, u.Why, u.Remedy)
		}
	}
	return ""
}

func minorNumber(minor string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(minor, "3."))
	return n
}

// key is what an environment's identity takes from its interpreter.
func (i interpreter) key() string {
	return strings.Join([]string{i.Path, i.Version, i.Platform, i.Implementation}, "\x00")
}

// alias makes, once, a folder whose python, python3 and python3.x are this interpreter, and returns it: on the program's
// PATH all three names work, whatever this machine calls its interpreters.
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
		// Another process was first, or it is damaged: both are settled by looking again.
		if target, err := os.Readlink(filepath.Join(dir, "python3")); err == nil && target == i.Path {
			return dir, nil
		}
		return "", err
	}
	return dir, nil
}

// candidate is a file that may be a Python.
type candidate struct {
	// path as found, real behind links.
	path, real string
	// shim: a script, which must be asked what it stands for.
	shim bool
	// onPath is the candidate's place among the python3 of PATH, -1 for others.
	onPath int
}

var pythonName = regexp.MustCompile(`^python3(\.[0-9]+)?$`)

// places are the folders that are searched, PATH first.
type places struct {
	path string // of the host
	home string
	env  func(string) string
}

// folders lists them in order of preference, without doubles; the first n are PATH's.
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
	return list, n
}

func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// candidates lists every file that may be a Python, without doubles, in order of preference.
func (p places) candidates() []candidate {
	folders, onPath := p.folders()
	var list []candidate
	seen := map[string]bool{}
	for place, dir := range folders {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		names := []string{}
		for _, e := range entries {
			if pythonName.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
		// python3 first, then the newest: that is what a user means who names no version.
		slices.SortFunc(names, func(a, b string) int {
			if a == "python3" || b == "python3" {
				return cmp.Compare(a, b)
			}
			return minorNumber(strings.TrimPrefix(b, "python")) - minorNumber(strings.TrimPrefix(a, "python"))
		})
		for _, name := range names {
			c := candidate{path: filepath.Join(dir, name), onPath: -1}
			if place < onPath && name == "python3" {
				c.onPath = place
			}
			real, err := filepath.EvalSymlinks(c.path)
			if err != nil {
				continue
			}
			c.real = real
			c.shim = isScript(real)
			if c.shim {
				c.real = c.path // a shim goes by the name it is called by
				if name != "python3" || c.onPath < 0 {
					continue // what it stands for is found where it is installed
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

// isScript tells a shim from a program.
func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = f.ReadAt(head[:], 0)
	return err == nil && string(head[:]) == "#!"
}

// stamp changes whenever what c would answer to uid may have changed: the file, what a shim is told, and who may pass
// to it.
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

// guess reads a version out of a path, for findings about interpreters that cannot be asked.
var versionInPath = regexp.MustCompile(`3\.[0-9]+(\.[0-9]+)?`)

func guess(path string) string {
	all := versionInPath.FindAllString(path, -1)
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	if len(all) == 0 {
		return ""
	}
	return all[0]
}
