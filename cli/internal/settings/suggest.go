package settings

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// other says what to use in place of a key that other servers have. The names are those below the root or http.
var other = map[string]string{
	"port": "http.bind", "host": "http.bind", "listen": "http.bind", "address": "http.bind", "addr": "http.bind",
}

// instead returns what to add to the error about an unknown key of a file: a key that was meant, or what serves its purpose.
func (l *loader) instead(path string) string {
	meant, why := l.meant(path)
	known := []string{"backends"}
	for _, k := range l.keys {
		known = append(known, k.path)
	}
	at := parent(path)
	for _, name := range l.namesIn(at) {
		known = append(known, join(at, name))
	}
	switch meant = cmp.Or(meant, nearest(path, known)); {
	case why != "":
		return ": " + why
	case meant != "":
		return question(meant)
	default:
		return l.knownIn(at)
	}
}

// meant returns the key that an unknown one probably means, or why there is none. Both are empty if neither is known.
func (l *loader) meant(path string) (key, why string) {
	at := parent(path)
	name := strings.TrimPrefix(strings.TrimPrefix(path, at), ".")
	outside := at == "" || at == "http"
	if first, _, _ := strings.Cut(name, "_"); outside && slices.Contains([]string{"tls", "ssl", "https"}, first) {
		return "", "the server speaks plain HTTP: let a reverse proxy in front of it speak TLS, and keep http.bind on loopback"
	}
	names := l.namesIn(at)
	if near := executor.Nearest(name, names); near != "" {
		return join(at, near), ""
	}
	for _, known := range names {
		if words := strings.Split(known, "_"); slices.Contains(words, name) || slices.Contains(words, strings.TrimSuffix(name, "s")) {
			return join(at, known), ""
		}
	}
	if outside {
		if key := other[name]; key != "" {
			return key, ""
		}
		if near := executor.Nearest(name, slices.Sorted(maps.Keys(other))); near != "" {
			return other[near], ""
		}
	}
	for _, k := range l.keys { // the key may stand in another section
		last := k.path[strings.LastIndexByte(k.path, '.')+1:]
		if last != name && !strings.HasPrefix(last, name+"_") || strings.HasPrefix(path, k.path+".") {
			continue
		}
		if key == "" || strings.HasPrefix(k.path, at+".") && !strings.HasPrefix(key, at+".") { // the same section first
			key = k.path
		}
	}
	return key, ""
}

// meantVariable returns the known variable that an unknown one probably means, or why there is none.
func (l *loader) meantVariable(variable string, known []string) (meant, why string) {
	all, isOurs := strings.CutPrefix(variable, EnvPrefix)
	if !isOurs {
		return nearest(variable, known), ""
	}
	all = strings.ToLower(all)
	at, name := "", all
	for _, k := range l.keys {
		section := parent(k.path)
		if rest, ok := strings.CutPrefix(all, strings.ReplaceAll(section, ".", "_")+"_"); ok && len(section) > len(at) {
			at, name = section, rest
		}
	}
	path, why := l.meant(join(at, name))
	if l.isKey(path) {
		return key{path: path}.variable(), why
	}
	return nearest(variable, known), why
}

// namesIn returns the names of the keys and sections in a section, sorted.
func (l *loader) namesIn(section string) (names []string) {
	for _, k := range l.keys {
		rest, ok := k.path, section == ""
		if !ok {
			rest, ok = strings.CutPrefix(k.path, section+".")
		}
		name, _, _ := strings.Cut(rest, ".")
		if ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if section == "" {
		names = append(names, "backends")
	}
	slices.Sort(names)
	return names
}

// knownIn returns the keys of a section, for an error.
func (l *loader) knownIn(section string) string {
	names := l.namesIn(section)
	if len(names) == 0 {
		return ""
	}
	return "; known are " + strings.Join(names, ", ")
}

// nearest returns the known name that is most similar to name; empty if none is similar.
func nearest(name string, known []string) string {
	best, limit := "", 2+len(strings.TrimPrefix(name, EnvPrefix))/4
	for _, k := range known {
		if d := executor.EditDistance(strings.ToLower(name), strings.ToLower(k)); d < limit || d == limit && best != "" && k < best {
			best, limit = k, d
		}
	}
	return best
}

func question(nearest string) string {
	if nearest == "" {
		return ""
	}
	return ": did you mean " + nearest + "?"
}
