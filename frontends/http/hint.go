package httpfrontend

import (
	"maps"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// hint returns a question for the field near of the object at path. If near is "", it names the known fields.
func (s shape) hint(path, near string) string {
	names := slices.Sorted(maps.Keys(s))
	switch {
	case near == "" && len(names) == 1:
		return ": must be " + names[0]
	case near == "":
		return ": must be one of " + strings.Join(names, ", ")
	}
	return ": did you mean " + below(path, near) + "?"
}

// meant are fields by the names that other APIs give them.
var meant = map[string]string{
	"source": "code", "source_code": "code", "program": "code", "text": "code", "input": "stdin", "packages": "requirements_txt", "dependencies": "requirements_txt",
	"timeout_ms": "config.timeout_seconds", "time_limit": "config.timeout_seconds", "memory_limit": "config.memory_mb", "tests": "cases", "output": "stdout",
}

// near returns the known field that is nearest to an unknown name, "" if none is near. A field of a nested object counts too:
// memory_mb is near config.memory_mb.
func (s shape) near(name string) string {
	var known []string
	paths := map[string]string{}
	consider := func(name, path string) {
		if paths[name] == "" {
			known, paths[name] = append(known, name), path
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s)) {
		consider(k, k)
		for _, nested := range slices.Sorted(maps.Keys(s[k].fields)) {
			consider(nested, k+"."+nested)
		}
	}
	if near := paths[executor.Nearest(name, known)]; near != "" {
		return near
	}
	if near := meant[name]; slices.Contains(slices.Collect(maps.Values(paths)), near) {
		return near
	}
	return ""
}
