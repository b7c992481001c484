package snippet

import "strings"

// shellText is a shell's text that is read from left to right.
type shellText struct {
	text string
	at   int
	// open holds what is open, innermost last: if, loop, case, {, (, $( and ((.
	open []string
	// command: a word here is the name of a command, so that "if" is a keyword.
	command bool
	// last is the last word or sign.
	last string
	// documents are the ends of here-documents that begin with the next line.
	documents []document
	// header: "name()" was read, and its body was not. naming: "function" was, and its name was not.
	header, naming bool
}

// document is a here-document that was announced.
type document struct {
	end string
	// tabs before its lines do not count.
	tabs bool
}

func shell(text string) bool {
	s := &shellText{text: text, command: true}
	for s.at < len(s.text) {
		switch more, wrong := s.token(); {
		case wrong:
			return false
		case more:
			return true
		}
	}
	if len(s.open) > 0 || len(s.documents) > 0 || s.header {
		return true
	}
	return s.last == "|" || s.last == "||" || s.last == "&&" || s.last == "|&" || s.last == "\\"
}

func (s *shellText) top() string {
	if len(s.open) == 0 {
		return ""
	}
	return s.open[len(s.open)-1]
}

func (s *shellText) push(what string) { s.open = append(s.open, what) }

// pop closes what; false: something else is open.
func (s *shellText) pop(what string) bool {
	if s.top() != what {
		return false
	}
	s.open = s.open[:len(s.open)-1]
	return true
}

// token reads a token. more: the text ends within it; wrong: no line can make it right.
func (s *shellText) token() (more, wrong bool) {
	c := s.text[s.at]
	switch c {
	case ' ', '\t', '\r':
		s.at++
		return false, false
	case '\n':
		s.at++
		s.command = true
		return s.skipDocuments(), false
	case '#':
		end := strings.IndexByte(s.text[s.at:], '\n')
		if end < 0 {
			end = len(s.text) - s.at
		}
		s.at += end
		return false, false
	case ';', '&', '|':
		s.separator(c)
		return false, false
	case '(', ')':
		return false, !s.paren(c)
	case '<':
		if strings.HasPrefix(s.text[s.at:], "<<") && !strings.HasPrefix(s.text[s.at:], "<<<") {
			return s.announce(), false
		}
	}
	if c == '<' || c == '>' {
		for s.at < len(s.text) && strings.IndexByte("<>&|", s.text[s.at]) >= 0 {
			s.at++
		}
		if s.at < len(s.text) && s.text[s.at] == '(' {
			s.at++
			s.push("(")
			s.command = true
		}
		return false, false
	}
	return s.word()
}

func (s *shellText) separator(c byte) {
	s.last = string(c)
	for s.at++; s.at < len(s.text) && strings.IndexByte(";&|", s.text[s.at]) >= 0; s.at++ {
		s.last += s.text[s.at : s.at+1]
	}
	s.command = true
}

// paren reads a parenthesis outside of a word.
func (s *shellText) paren(c byte) bool {
	s.at++
	if c == '(' {
		if strings.HasPrefix(s.text[s.at:], ")") && s.last != "" && !s.command {
			s.at++ // name()
			s.header, s.command, s.last = true, true, "()"
			return true
		}
		s.push("(")
		s.command, s.last, s.header = true, "(", false
		return true
	}
	s.command, s.last = false, ")"
	if s.top() == "case" {
		s.command = true // behind a pattern
		return true
	}
	return s.pop("(")
}

// word reads a word with all that is quoted and substituted in it.
func (s *shellText) word() (more, wrong bool) {
	start := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch c {
		case ' ', '\t', '\r', '\n', ';', '&', '|', '(', ')', '<', '>':
			if c == '(' && s.at > start && strings.IndexByte("?*+@!=", s.text[s.at-1]) >= 0 {
				// A pattern or an array.
				s.at++
				if more := s.until(')'); more {
					return true, false
				}
				continue
			}
			return false, !s.take(s.text[start:s.at])
		case '\\':
			s.at++
			if s.at == len(s.text) {
				s.last = "\\"
				return false, false
			}
			s.at++
			if s.text[s.at-1] == '\n' && s.at-2 == start {
				return false, false // two lines are one
			}
		default:
			if s.piece() {
				return true, false
			}
		}
	}
	return false, !s.take(s.text[start:s.at])
}

// piece reads one character, or what is quoted or substituted here. It reports whether the text ends within that.
func (s *shellText) piece() bool {
	c := s.text[s.at]
	rest := s.text[s.at:]
	s.at++
	switch {
	case c == '\'':
		end := strings.IndexByte(s.text[s.at:], '\'')
		if end < 0 {
			return true
		}
		s.at += end + 1
	case strings.HasPrefix(rest, "$'"):
		s.at++
		return s.until('\'')
	case c == '"':
		return s.until('"')
	case c == '`':
		return s.until('`')
	case strings.HasPrefix(rest, "$("):
		s.at++
		return s.until(')')
	case strings.HasPrefix(rest, "${"):
		s.at++
		return s.until('}')
	}
	return false
}

// until reads up to behind end, over what is quoted and nested. It reports whether the text ends before.
func (s *shellText) until(end byte) bool {
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '\\':
			s.at = min(s.at+2, len(s.text))
			continue
		case c == end:
			s.at++
			return false
		case end == '"' && c == '\'', end == '\'':
			s.at++ // only a character
			continue
		case c == '(' && end == ')':
			s.at++
			if s.until(')') {
				return true
			}
			continue
		}
		if s.piece() {
			return true
		}
	}
	return true
}

// take notes a word. false: it closes what is not open.
func (s *shellText) take(word string) bool {
	command := s.command
	s.command, s.last = false, word
	if s.naming {
		s.naming, s.command = false, true
		return true
	}
	if !command {
		if word == "in" && s.top() == "case" {
			s.command = true
		}
		return true
	}
	s.header = false
	switch word {
	case "if":
		s.push("if")
		s.command = true
	case "for", "select":
		s.push("loop")
	case "while", "until":
		s.push("loop")
		s.command = true
	case "case":
		s.push("case")
	case "{":
		s.push("{")
		s.command = true
	case "then", "else", "elif", "do", "!", "time":
		s.command = true
	case "fi":
		return s.pop("if")
	case "done":
		return s.pop("loop")
	case "esac":
		return s.pop("case")
	case "}":
		return s.pop("{")
	case "function":
		s.header, s.naming = true, true
	}
	return true
}

// announce reads "<<END". It reports whether the text ends within.
func (s *shellText) announce() bool {
	s.at += 2
	d := document{}
	if s.at < len(s.text) && s.text[s.at] == '-' {
		d.tabs = true
		s.at++
	}
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
	start := s.at
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n;&|<>()", s.text[s.at]) < 0 {
		s.at++
	}
	d.end = strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(s.text[start:s.at])
	if d.end != "" {
		s.documents = append(s.documents, d)
	}
	return false
}

// skipDocuments reads the here-documents that begin here. It reports whether the text ends within one.
func (s *shellText) skipDocuments() bool {
	for len(s.documents) > 0 {
		if s.at >= len(s.text) {
			return true
		}
		line, _, more := strings.Cut(s.text[s.at:], "\n")
		s.at += len(line)
		if more {
			s.at++
		}
		if s.documents[0].tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == s.documents[0].end {
			s.documents = s.documents[1:]
		}
	}
	return false
}
