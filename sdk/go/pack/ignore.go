package pack

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// rule is one line of a .gitignore.
type rule struct {
	form     *regexp.Regexp
	negate   bool
	onlyDirs bool
}

// ruleSet is one .gitignore. base is the folder of its rules, relative to the uploaded folder. above is the path from the folder of
// the .gitignore to the uploaded folder.
type ruleSet struct {
	base  string
	above string
	rules []rule
}

// ignored reports whether a file is ignored. It looks at the sets from the last to the first, and at the rules of a set from the last
// to the first. The first match decides, as in git. An ignored folder is not entered, so no rule can include a file in it.
func ignored(sets []ruleSet, name string, dir bool) bool {
	for i := len(sets) - 1; i >= 0; i-- {
		set := sets[i]
		relative := path.Join(set.above, strings.TrimPrefix(strings.TrimPrefix(name, set.base), "/"))
		for j := len(set.rules) - 1; j >= 0; j-- {
			r := set.rules[j]
			if (dir || !r.onlyDirs) && r.form.MatchString(relative) {
				return !r.negate
			}
		}
	}
	return false
}

// parseRules reads a .gitignore. A line that is not a pattern matches nothing.
func parseRules(text []byte) []rule {
	var rules []rule
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if r, ok := parseRule(strings.TrimSuffix(lines.Text(), "\r")); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseRule(line string) (rule, bool) {
	line = trimSpaces(line)
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	var r rule
	if line[0] == '!' {
		r.negate, line = true, line[1:]
	}
	line, r.onlyDirs = strings.CutSuffix(line, "/")
	// A slash at the beginning or in the middle ties the pattern to the folder of the file.
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return rule{}, false
	}
	expression := translate(line)
	if !anchored {
		expression = "(?:.*/)?" + expression
	}
	form, err := regexp.Compile("(?s)^" + expression + "$")
	if err != nil {
		return rule{}, false
	}
	r.form = form
	return r, true
}

// trimSpaces removes the trailing spaces that have no backslash before them.
func trimSpaces(line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}

// translate converts a pattern to a regular expression.
func translate(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); {
		rest := pattern[i:]
		atStart := i == 0 || pattern[i-1] == '/'
		switch {
		case atStart && strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += 3
		case atStart && rest == "**" && i > 0:
			b.WriteString(".+")
			i += 2
		case rest[0] == '*':
			for i < len(pattern) && pattern[i] == '*' {
				i++
			}
			b.WriteString("[^/]*")
		case rest[0] == '?':
			b.WriteString("[^/]")
			i++
		case rest[0] == '[':
			class, n := translateClass(rest)
			b.WriteString(class)
			i += n
		case rest[0] == '\\' && len(rest) > 1:
			b.WriteString(regexp.QuoteMeta(rest[1:2]))
			i += 2
		default:
			n := strings.IndexAny(rest[1:], `*?[\/`) + 1
			if n == 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			i += n
		}
	}
	return b.String()
}

// translateClass reads "[…]" at the beginning of s and returns it as a regular expression, and its length. A class that
// does not end makes an expression that does not compile, so the pattern matches nothing, as in git.
func translateClass(s string) (string, int) {
	i := 1
	var b strings.Builder
	b.WriteString("[")
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		b.WriteString("^/")
		i++
	}
	for first := true; i < len(s); first = false {
		switch {
		case s[i] == ']' && !first:
			b.WriteString("]")
			return b.String(), i + 1
		case strings.HasPrefix(s[i:], "[:"):
			if end := strings.Index(s[i:], ":]"); end > 0 {
				b.WriteString(s[i : i+end+2])
				i += end + 2
				continue
			}
			b.WriteString(`\[`)
			i++
		case s[i] == '\\' && i+1 < len(s):
			b.WriteString(regexp.QuoteMeta(s[i+1 : i+2]))
			i += 2
		case s[i] == '-':
			b.WriteString("-")
			i++
		default:
			b.WriteString(regexp.QuoteMeta(s[i : i+1]))
			i++
		}
	}
	return "[", len(s)
}

// inherited returns the rules that hold for root from outside: .git/info/exclude and the .gitignore files of the folders
// between the repository's top and root.
func inherited(root string) []ruleSet {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil
	}
	above := ""
	var sets []ruleSet
	for dir := root; ; {
		if dir != root {
			sets = append(sets, readRules(filepath.Join(dir, ".gitignore"), "", above)...)
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			sets = append(sets, readRules(filepath.Join(dir, ".git", "info", "exclude"), "", above)...)
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil // not in a repository, so the files above have no meaning for root
		}
		above = path.Join(filepath.Base(dir), above)
		dir = parent
	}
	slices.Reverse(sets) // the nearest was read first; ignored asks the last first
	return sets
}

func readRules(file, base, above string) []ruleSet {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	if rules := parseRules(text); len(rules) > 0 {
		return []ruleSet{{base: base, above: above, rules: rules}}
	}
	return nil
}
