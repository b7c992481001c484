package httpfrontend

import (
	"maps"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// hint returns a question for the field near of the object at path, "" if near is "".
func hint(path, near string) string {
	if near == "" {
		return ""
	}
	return ": did you mean " + below(path, near) + "?"
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
	return paths[executor.Nearest(name, known)]
}
