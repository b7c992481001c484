package httpfrontend

import (
	"maps"
	"slices"
	"strings"

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
	best, limit := "", 3
	name = strings.ToLower(name)
	switch n := len(name); {
	case n < 3 || n > 40:
		return ""
	case n < 5:
		limit = 2
	}
	consider := func(known, path string) {
		if d := distance(name, known); d < limit {
			best, limit = path, d
		}
	}
	for _, known := range slices.Sorted(maps.Keys(s)) {
		consider(known, known)
		for _, nested := range slices.Sorted(maps.Keys(s[known].fields)) {
			consider(nested, known+"."+nested)
		}
	}
	return best
}

// distance returns the edit distance of a and b. It is at most 1 if b begins with a or ends with the word a: requirements of
// requirements_txt, image of docker_image.
func distance(a, b string) int {
	if a != b && (len(a) > 3 && strings.HasPrefix(b, a) || strings.HasSuffix(b, "_"+a)) {
		return 1
	}
	return executor.EditDistance(a, b)
}
