package uvbackend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// installation lists the files and folders that the program at path needs to run: the program, the folder that it is installed in,
// and the same of the file that its links lead to. System folders are not listed, because every program has them. A program in bin of
// a home folder, or of another folder that holds more than one installation, gets only what belongs to Python and Node.js there.
func installation(path string) []string {
	var list []string
	for _, file := range append([]string{path}, linked(path)...) {
		if isSystem(file) {
			continue
		}
		prefix := filepath.Dir(filepath.Dir(file))
		list = append(list, prefixFiles(prefix)...)
		if home := venvHome(prefix); home != "" {
			list = append(list, prefixFiles(filepath.Dir(home))...)
		}
		list = append(list, file)
	}
	list = unique(list)
	// The folders come first, because the files in them are visible then.
	slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
	return list
}

// isSystem reports whether path lies in a folder of the system, which every box has.
func isSystem(path string) bool {
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin"}, func(dir string) bool { return inFolder(path, dir) })
}

// linked returns the file that the links of path lead to, unless that is path itself.
func linked(path string) []string {
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		return []string{real}
	}
	return nil
}

// prefixFiles lists what programs need of the installations in prefix. If prefix holds one installation, that is prefix itself.
func prefixFiles(prefix string) []string {
	if isSystem(prefix) {
		return nil
	}
	if !sharedPrefix(prefix) {
		return []string{prefix}
	}
	var list []string
	for _, pattern := range []string{
		"bin/python3*", "lib/python3*", "lib64/python3*", "lib/libpython3*", "lib64/libpython3*", "include/python3*", "pyvenv.cfg", "lib/node_modules",
	} {
		found, _ := filepath.Glob(filepath.Join(prefix, pattern)) // the patterns are valid
		for _, path := range found {
			list = append(append(list, path), linked(path)...)
		}
	}
	return list
}

// sharedPrefix reports whether prefix may hold other things than one installation: a home folder or a folder above it, ~/.local, and
// the folders of the root.
func sharedPrefix(prefix string) bool {
	parent := filepath.Dir(prefix)
	return parent == "/" || parent == "/home" || filepath.Base(prefix) == ".local" || inFolder(homeDir(), prefix)
}

// inFolder reports whether path is dir or lies below it. Both are clean.
func inFolder(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// venvHome returns the folder of the interpreter that a virtual environment was made from, or "".
func venvHome(prefix string) string {
	raw, err := os.ReadFile(filepath.Join(prefix, "pyvenv.cfg"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "home" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
