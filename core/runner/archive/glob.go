package archive

import (
	"fmt"
	"path"
	"strings"
)

// Globs are the patterns of Start.Outputs, split at the slashes. "**" matches any number of folders, also none. The rest is
// path.Match within one name. A pattern whose last part is a name, or that ends in a slash, also matches everything below that folder.
type Globs [][]string

// ParseGlobs checks the patterns. The error names the first bad one.
func ParseGlobs(patterns []string) (Globs, error) {
	var all Globs
	for i, pattern := range patterns {
		p := pattern
		if strings.HasSuffix(p, "/") {
			p += "**"
		}
		if p == "" || strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("outputs[%d]: must be relative to the work folder (got %q)", i, pattern)
		}
		var parts []string
		for part := range strings.SplitSeq(p, "/") {
			if part == "" || part == "." {
				continue
			}
			if part == ".." {
				return nil, fmt.Errorf("outputs[%d]: must not contain \"..\" (got %q)", i, pattern)
			}
			if part == "**" && len(parts) > 0 && parts[len(parts)-1] == "**" {
				continue // the same, and matching stays quick
			}
			if _, err := path.Match(part, ""); err != nil {
				return nil, fmt.Errorf("outputs[%d]: %q: %w", i, pattern, err)
			}
			parts = append(parts, part)
		}
		// "x/**" matches a file x, too.
		if len(parts) == 0 || isName(parts[len(parts)-1]) {
			parts = append(parts, "**")
		}
		all = append(all, parts)
	}
	return all, nil
}

// isName reports whether a part of a pattern matches one name only.
func isName(part string) bool {
	for i := 0; i < len(part); i++ {
		switch part[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return false
		}
	}
	return true
}

// match reports whether one of g matches the relative path name.
func (g Globs) match(name string) bool {
	parts := strings.Split(name, "/")
	for _, pattern := range g {
		if matchParts(pattern, parts) {
			return true
		}
	}
	return false
}

// matchParts compares part by part. Like a shell it goes back to the last "**" only, so it takes at most len(pattern) ×
// len(parts) steps.
func matchParts(pattern, parts []string) bool {
	p, n := 0, 0
	starP, starN := -1, 0
	for n < len(parts) {
		if p < len(pattern) && pattern[p] == "**" {
			starP, starN = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, err := path.Match(pattern[p], parts[n]); ok && err == nil {
				p++
				n++
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starN++
		p, n = starP+1, starN
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	// "dir/**" matches what is below dir, not dir itself. A file matches by its own name here.
	return p == len(pattern)
}
