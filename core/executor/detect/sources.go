package detect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// tools is the table of a pyproject.toml or a block of script metadata that has the settings of uv.
type tools struct {
	UV map[string]any `toml:"uv"`
}

// deciding are the settings of uv that decide which packages are installed. Requirements cannot say the same.
var deciding = []string{
	"constraint-dependencies", "exclude-dependencies", "exclude-newer", "exclude-newer-package", "fork-strategy", "override-dependencies",
	"prerelease", "resolution",
}

// specifiers returns the trimmed dependencies of the list that is called where. Settings of uv by which others would be installed are an
// error. locked ends its text, and says where they are obeyed.
func (t tools) specifiers(where string, dependencies []string, locked string) ([]string, error) {
	sources, ok := t.UV["sources"].(map[string]any)
	if !ok && t.UV["sources"] != nil {
		return nil, fmt.Errorf("tool.uv.sources: must be a table")
	}
	elsewhere := map[string]bool{}
	for name, source := range sources {
		elsewhere[normal(name)] = !isIndex(source)
	}
	for i, d := range dependencies {
		d = strings.TrimSpace(d)
		if !isSpecifier(d) {
			return nil, fmt.Errorf("%s[%d]: must be a dependency specifier, such as numpy>=2 (got %q)", where, i, d)
		}
		// A package index may have another package of the same name.
		if name := normal(nameForm().FindString(d)); elsewhere[name] {
			return nil, fmt.Errorf("tool.uv.sources.%s: must be a package index%s", name, locked)
		}
		dependencies[i] = d
	}
	for _, name := range deciding {
		if t.UV[name] != nil && len(dependencies) > 0 {
			return nil, fmt.Errorf("tool.uv.%s: must not be set%s: give the versions in the dependencies, such as numpy==2.1.0", name, locked)
		}
	}
	return dependencies, nil
}

// isIndex reports whether every table of a source in tool.uv.sources names an index.
func isIndex(source any) bool {
	if list, ok := source.([]any); ok {
		return !slices.ContainsFunc(list, func(one any) bool { return !isIndex(one) })
	}
	table, ok := source.(map[string]any)
	return ok && table["index"] != nil
}

var (
	nameForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+`) })
	separator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })
)

// normal returns the normal form of a package's name.
func normal(name string) string { return strings.ToLower(separator().ReplaceAllString(name, "-")) }
