package settings

import (
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
	name := path[strings.LastIndexByte(path, '.')+1:]
	at := strings.TrimSuffix(strings.TrimSuffix(path, name), ".")
	if at == "" || at == "http" {
		if name == "tls" || name == "ssl" || name == "https" {
			return ": the server speaks plain HTTP: let a reverse proxy in front of it speak TLS, and keep http.bind on loopback"
		}
		if meant := other[name]; meant != "" {
			return question(meant)
		}
	}
	// The key may be misspelled, or stand in another section.
	known := []string{"backends"}
	for _, k := range l.keys {
		known = append(known, k.path)
		if section, _, nested := strings.Cut(strings.TrimPrefix(k.path, at+"."), "."); nested && (at == "" || strings.HasPrefix(k.path, at+".")) {
			known = append(known, join(at, section))
		}
	}
	meant := ""
	for _, k := range known {
		last := k[strings.LastIndexByte(k, '.')+1:]
		if last != name && !strings.HasPrefix(last, name+"_") || strings.HasPrefix(path, k+".") {
			continue
		}
		if meant == "" || strings.HasPrefix(k, at+".") && !strings.HasPrefix(meant, at+".") { // the same section first
			meant = k
		}
	}
	if meant != "" {
		return question(meant)
	}
	if near := nearest(path, known); near != "" {
		return question(near)
	}
	return l.knownIn(at)
}

// knownIn returns the keys of a section, for an error.
func (l *loader) knownIn(section string) string {
	var names []string
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
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
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
