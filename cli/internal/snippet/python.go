package snippet

import (
	"slices"
	"strings"
)

// compound are the words that begin a statement with a block, which an empty line ends.
var compound = []string{"if", "for", "while", "try", "with", "def", "class", "async"}

// pythonText is a Python text that is read from left to right.
type pythonText struct {
	text string
	at   int
	// depth counts open brackets.
	depth int
	// joined: the line before ended with a backslash.
	joined bool
	// block: the last statement at the margin has a block.
	block bool
}

func python(text string) bool {
	p := &pythonText{text: text}
	for p.at < len(p.text) {
		if p.depth == 0 && !p.joined {
			p.statement()
		}
		p.joined = false
		if open, wrong := p.line(); open || wrong {
			return open
		}
	}
	if p.depth > 0 || p.joined {
		return true
	}
	last := text[strings.LastIndexByte(text, '\n')+1:]
	return p.block && strings.TrimSpace(last) != ""
}

// statement looks at the first word of a logical line.
func (p *pythonText) statement() {
	rest := p.text[p.at:]
	line, _, _ := strings.Cut(rest, "\n")
	if line == "" || line[0] == ' ' || line[0] == '\t' || line[0] == '\f' || line[0] == '#' {
		return // of a block, or nothing
	}
	word := line[:len(line)-len(strings.TrimLeft(line, "abcdefghijklmnopqrstuvwxyz"))]
	after := line[len(word):]
	whole := after == "" || strings.ContainsAny(after[:1], " \t:(\\#")
	p.block = line[0] == '@' || whole && slices.Contains(compound, word)
}

// line reads up to behind the next line end. open: the text ends within a string that may have more lines; wrong: no line
// can make it right.
func (p *pythonText) line() (open, wrong bool) {
	colon := false
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch c {
		case '\n':
			p.block = p.block || colon && p.depth == 0
			return false, false
		case ' ', '\t', '\r', '\f':
			continue
		case '#':
			end := strings.IndexByte(p.text[p.at:], '\n')
			if end < 0 {
				end = len(p.text) - p.at
			}
			p.at += end
			continue
		case '\\':
			if p.at == len(p.text) {
				p.joined = true
				return false, false
			}
			if p.text[p.at] == '\n' {
				p.at++
				p.joined = true
				// A line end behind which there is nothing: the line that is joined is empty, and so the statement ends.
				if p.at == len(p.text) {
					p.joined = false
				}
				return false, false
			}
			return false, true
		case '\'', '"':
			if open, wrong := p.quoted(c); open || wrong {
				return open, wrong
			}
		case '(', '[', '{':
			p.depth++
		case ')', ']', '}':
			if p.depth--; p.depth < 0 {
				return false, true
			}
		}
		colon = c == ':'
	}
	p.block = p.block || colon && p.depth == 0
	return false, false
}

// quoted reads a string behind its first quote.
func (p *pythonText) quoted(quote byte) (open, wrong bool) {
	end := string(quote)
	if triple := strings.Repeat(end, 3); strings.HasPrefix(p.text[p.at-1:], triple) {
		end = triple
		p.at += 2
	}
	for p.at < len(p.text) {
		switch {
		case p.text[p.at] == '\\':
			p.at++
			if p.at == len(p.text) {
				return true, false
			}
			p.at++
		case strings.HasPrefix(p.text[p.at:], end):
			p.at += len(end)
			return false, false
		case p.text[p.at] == '\n' && len(end) == 1:
			return false, true
		default:
			p.at++
		}
	}
	// A short string ends with its line, whatever comes; one that a backslash joined to another line may go on.
	last := p.text[:len(p.text)]
	joined := len(end) == 1 && strings.HasSuffix(last, "\\\n")
	return len(end) == 3 || joined, len(end) == 1 && !joined
}
