package app

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/python-executor/python-executor/core/config"
)

// changedKeys names the keys in which a and b differ, without their values, which may be secret.
func changedKeys(a, b config.Config) []string {
	var was, is any
	for _, c := range []struct {
		from config.Config
		to   *any
	}{{a, &was}, {b, &is}} {
		raw, err := json.Marshal(c.from)
		if err == nil {
			err = json.Unmarshal(raw, c.to)
		}
		if err != nil {
			return []string{"unknown"}
		}
	}
	return differing("", was, is)
}

// differing returns the paths below at where a and b differ.
func differing(at string, a, b any) (paths []string) {
	was, okA := a.(map[string]any)
	is, okB := b.(map[string]any)
	if !okA || !okB {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{at}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := name
		if at != "" {
			path = at + "." + name
		}
		paths = append(paths, differing(path, was[name], is[name])...)
	}
	return paths
}
