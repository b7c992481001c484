package snippet

import (
	"slices"
	"strings"
)

// beforeRegexp are words behind which a slash begins a regular expression.
var beforeRegexp = []string{"return", "typeof", "case", "in", "of", "void", "delete", "throw", "new", "else", "do", "await", "yield", "instanceof"}

// unfinished are words that cannot end a statement.
var unfinished = []string{"else", "do", "extends", "new", "typeof", "void", "delete", "in", "of", "instanceof", "case", "const", "let", "var", "import",
	"function", "class", "try", "finally", "throw", "async"}

// javascriptText is a JavaScript text that is read from left to right.
type javascriptText struct {
	text string
	at   int
	// open holds the open brackets, innermost last; '`' is a template, '$' what stands in one.
	open []opened
	// last is the last token: a word, a number ("0"), a string ("\""), a regular expression ("/r/") or a sign.
	last string
	// header: what was closed last is the head of an if, for or while, or the parameters of a function: a body must follow.
	header bool
	// dos counts the do whose while has not come.
	dos int
	// class: a class has begun whose body has not. function: the same, of its parameters.
	class, function bool
}

type opened struct {
	bracket byte
	// header: see javascriptText.
	header bool
}

func javascript(text string) bool {
	j := &javascriptText{text: text}
	for j.at < len(j.text) {
		if j.inTemplate() {
			if j.template() {
				return true
			}
			continue
		}
		switch more, wrong := j.token(); {
		case wrong:
			return false
		case more:
			return true
		}
	}
	if len(j.open) > 0 || j.header || j.class || j.function || slices.Contains(unfinished, j.last) {
		return true
	}
	switch j.last {
	case "++", "--", ")", "]", "}", "", ";", "\"", "`", "/r/", "0":
		return false
	}
	// A sign that has a right side.
	return strings.ContainsAny(j.last[len(j.last)-1:], "=+-*/%&|^?:,.<>!~")
}

func (j *javascriptText) inTemplate() bool {
	return len(j.open) > 0 && j.open[len(j.open)-1].bracket == '`'
}

// template reads a template up to its end or to what stands in it. It reports whether the text ends before.
func (j *javascriptText) template() bool {
	for j.at < len(j.text) {
		c := j.text[j.at]
		j.at++
		switch {
		case c == '\\':
			j.at++
		case c == '`':
			j.open = j.open[:len(j.open)-1]
			j.last = "`"
			return false
		case c == '$' && j.at < len(j.text) && j.text[j.at] == '{':
			j.at++
			j.open = append(j.open, opened{bracket: '$'})
			j.last = "{"
			return false
		}
	}
	return true
}

// token reads a token. more: the text ends within it.
func (j *javascriptText) token() (more, wrong bool) {
	c := j.text[j.at]
	rest := j.text[j.at:]
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		j.at++
		return false, false
	case strings.HasPrefix(rest, "//"):
		j.skipLine()
		return false, false
	case strings.HasPrefix(rest, "/*"):
		end := strings.Index(rest[2:], "*/")
		if end < 0 {
			return true, false
		}
		j.at += end + 4
		return false, false
	case c == '"' || c == '\'':
		return j.quoted(c)
	case c == '`':
		j.at++
		j.take("`")
		j.open = append(j.open, opened{bracket: '`'})
		return false, false
	case c == '/' && j.regexpPossible():
		return false, !j.regexp()
	case isWord(c):
		j.word()
		return false, false
	}
	return false, !j.sign()
}

func (j *javascriptText) skipLine() {
	end := strings.IndexByte(j.text[j.at:], '\n')
	if end < 0 {
		end = len(j.text) - j.at
	}
	j.at += end
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c == '#' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// take notes a token that is not a body of its own.
func (j *javascriptText) take(token string) { j.last, j.header = token, false }

func (j *javascriptText) word() {
	start := j.at
	for j.at < len(j.text) && isWord(j.text[j.at]) {
		j.at++
	}
	word := j.text[start:j.at]
	property := j.last == "." || j.last == "?."
	if property || word[0] >= '0' && word[0] <= '9' {
		word = "0"
	}
	switch word {
	case "do":
		j.dos++
	case "class":
		j.class = true
	case "function":
		j.function = true
	case "while":
		if j.dos > 0 && (j.last == "}" || j.last == ";") {
			j.dos--
			word = "of a do"
		}
	case "await":
		if j.last == "for" {
			word = "for await"
		}
	}
	j.take(word)
}

func (j *javascriptText) quoted(quote byte) (more, wrong bool) {
	for j.at++; j.at < len(j.text); j.at++ {
		switch j.text[j.at] {
		case '\\':
			j.at++
			if j.at >= len(j.text) {
				return true, false
			}
		case quote:
			j.at++
			j.take("\"")
			return false, false
		case '\n':
			return false, true
		}
	}
	if strings.HasSuffix(j.text, "\\\n") {
		return true, false
	}
	return false, true
}

// regexpPossible reports whether a slash here begins a regular expression rather than being a division.
func (j *javascriptText) regexpPossible() bool {
	switch j.last {
	case "":
		return true
	case ")", "]", "}", "\"", "`", "/r/", "0", "++", "--":
		return j.header
	}
	if isWord(j.last[0]) {
		return slices.Contains(beforeRegexp, j.last)
	}
	return true
}

// regexp reads a regular expression; false: it does not end on its line.
func (j *javascriptText) regexp() bool {
	class := false
	for i := j.at + 1; i < len(j.text) && j.text[i] != '\n'; i++ {
		switch c := j.text[i]; {
		case c == '\\':
			i++
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			for j.at = i + 1; j.at < len(j.text) && isWord(j.text[j.at]); j.at++ {
			}
			j.take("/r/")
			return true
		}
	}
	return false
}

// sign reads a bracket or another sign; false: a bracket closes what is not open.
func (j *javascriptText) sign() bool {
	c := j.text[j.at]
	for _, long := range []string{"=>", "++", "--", "?.", "..."} {
		if strings.HasPrefix(j.text[j.at:], long) {
			j.at += len(long)
			j.take(long)
			return true
		}
	}
	j.at++
	switch c {
	case '(', '[', '{':
		head := c == '(' && (j.function || slices.Contains([]string{"if", "for", "while", "with", "for await"}, j.last))
		if c == '(' {
			j.function = false
		}
		j.open = append(j.open, opened{c, head})
		if c == '{' {
			j.class = false
		}
		j.take(string(c))
	case ')', ']', '}':
		if len(j.open) == 0 {
			return false
		}
		top := j.open[len(j.open)-1]
		if want := map[byte]byte{'(': ')', '[': ']', '{': '}', '$': '}'}[top.bracket]; want != c {
			return false
		}
		j.open = j.open[:len(j.open)-1]
		if top.bracket == '$' {
			return true // back in the template
		}
		j.take(string(c))
		j.header = top.header
	default:
		j.take(string(c))
	}
	return true
}
