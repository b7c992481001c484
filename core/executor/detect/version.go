package detect

import (
	"slices"
	"strconv"
	"strings"
)

// SelectVersion returns the first of versions ("3.12", best first) that satisfies the version specifier spec, or "" if
// none does. Without versions it returns the minor version that spec pins ("==3.12.*"), else "".
//
// versions are minor versions. Each stands for all its patch releases. A minor version satisfies a clause about a patch
// release (">=3.11.4") if one of its patch releases does.
func SelectVersion(spec string, versions []string) string {
	clauses, ok := parseSpecifier(spec)
	if !ok {
		return ""
	}
	if len(versions) == 0 {
		for _, c := range clauses {
			if (c.op == "==" || c.op == "===" || c.op == "~=" && len(c.version) > 2) && len(c.version) >= 2 {
				return minorText(c.version)
			}
		}
		return ""
	}
	for _, version := range versions {
		v, ok := parseVersion(version)
		if ok && len(v) >= 2 && satisfiesAll(v[:2], clauses) {
			return version
		}
	}
	return ""
}

// ValidSpecifier reports whether SelectVersion can read the version specifier spec.
func ValidSpecifier(spec string) bool {
	_, ok := parseSpecifier(spec)
	return ok
}

func minorText(v []int) string { return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) }

type clause struct {
	op       string
	version  []int
	wildcard bool
}

func parseSpecifier(spec string) ([]clause, bool) {
	var clauses []clause
	for part := range strings.SplitSeq(spec, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		var c clause
		for _, op := range []string{"===", "==", "~=", "!=", "<=", ">=", "<", ">"} {
			if rest, ok := strings.CutPrefix(part, op); ok {
				c.op, part = op, strings.TrimSpace(rest)
				break
			}
		}
		if c.op == "" {
			return nil, false
		}
		part, c.wildcard = strings.CutSuffix(part, ".*")
		if c.wildcard && c.op != "==" && c.op != "!=" {
			return nil, false
		}
		var ok bool
		if c.version, ok = parseVersion(part); !ok || c.op == "~=" && len(c.version) < 2 {
			return nil, false
		}
		clauses = append(clauses, c)
	}
	return clauses, len(clauses) > 0
}

// parseVersion reads the release part of a version. It ignores suffixes (rc1, .dev0, +local), which do not change the minor
// version.
func parseVersion(text string) ([]int, bool) {
	text = strings.TrimPrefix(text, "v")
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end == 0 {
		return nil, false
	}
	if end > 0 {
		text = strings.TrimSuffix(text[:end], ".")
	}
	var version []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || len(version) >= 6 || n > 1<<20 {
			return nil, false
		}
		version = append(version, n)
	}
	return version, true
}

func satisfiesAll(minor []int, clauses []clause) bool {
	for _, c := range clauses {
		if !satisfies(minor, c) {
			return false
		}
	}
	return true
}

// satisfies reports whether some patch release of minor satisfies c.
func satisfies(minor []int, c clause) bool {
	bound := c.version
	if len(bound) == 1 {
		bound = []int{bound[0], 0}
	}
	patch := len(bound) > 2
	order := slices.Compare(minor, bound[:2])
	switch c.op {
	case "==", "===":
		return order == 0 || len(c.version) == 1 && c.wildcard && minor[0] == bound[0]
	case "!=":
		if len(c.version) == 1 && c.wildcard {
			return minor[0] != bound[0]
		}
		// If one patch release is excluded, the others of its minor version remain.
		return order != 0 || !c.wildcard || patch
	case "~=":
		if patch {
			return order == 0
		}
		return minor[0] == bound[0] && order >= 0
	case ">=":
		return order >= 0
	case ">":
		// By the specification ">3.11" excludes 3.11 only. 3.11.1 is greater.
		return order >= 0
	case "<=":
		return order <= 0
	default: // "<"
		return order < 0 || order == 0 && patch && bound[2] > 0
	}
}
