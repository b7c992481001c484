package input

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// absent returns why there is no input of that name, and what to do.
func absent(name string) string {
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case isURL && (scheme == "http" || scheme == "https"):
		return "must be a file or a folder on this machine, because run fetches no URL: curl -fsSL URL | python-executor run"
	case isURL, strings.HasPrefix(name, "git@"):
		return "must be a file or a folder on this machine, because run fetches no URL: download it first"
	case strings.ContainsAny(name, "\n(;="):
		return "no such file or folder (-c CODE runs code)"
	}
	var names []string
	entries, _ := os.ReadDir(filepath.Dir(name)) // without the folder there is no name to offer
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if near := executor.Nearest(filepath.Base(name), names); near != "" {
		return "no such file or folder: did you mean " + filepath.Join(filepath.Dir(name), near) + "?"
	}
	return "no such file or folder here"
}

// clipped shortens a name for an error.
func clipped(name string) string {
	const most = 100
	line, _, more := strings.Cut(name, "\n")
	if len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += "…"
	}
	return line
}

// programsOf returns the files of an input that could be its entrypoint, for the end of an error; "" if there are none.
func programsOf(names map[string]struct{}) string {
	var programs []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if executor.LanguageOf(name) != executor.LanguageDefault && len(programs) < 3 {
			programs = append(programs, name)
		}
	}
	if programs == nil {
		return ""
	}
	return " (such as " + strings.Join(programs, ", ") + ")"
}
