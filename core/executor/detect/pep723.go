package detect

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// maxScript bounds the bytes of a block. A TOML reader may need a hundred times the size of the text in memory.
const maxScript = 256 << 10

// Script is the content of a program's block of script metadata (PEP 723).
type Script struct {
	// RequiresPython is a version specifier; empty: none.
	RequiresPython string `toml:"requires-python"`
	// Dependencies is nil if the block has no dependencies key, and empty if the list is empty.
	Dependencies []string `toml:"dependencies"`
	Tool         tools    `toml:"tool"`
}

// Requirements returns the dependencies in requirements.txt form.
func (s Script) Requirements() string { return requirementsText(s.Dependencies) }

// requirementsText returns lines in requirements.txt form.
func requirementsText(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// isSpecifier reports whether the text d can stand in a requirements.txt without becoming something else: the form has options,
// comments and continuation lines, a dependency specifier has none of them.
func isSpecifier(d string) bool {
	return d != "" && !strings.ContainsAny(d, "\n\r\\\x00") && d[0] != '-' && d[0] != '#'
}

// ParseScript reads the script block of a Python source. ok reports whether there is a block, or what is meant to be one.
func ParseScript(source []byte) (m Script, ok bool, err error) {
	text, ok, err := scriptBlock(source)
	if err != nil || !ok {
		return Script{}, ok || err != nil, err
	}
	if len(text) > maxScript {
		return Script{}, true, fmt.Errorf("script metadata: more than %d bytes", maxScript)
	}
	if err := decodeTOML(text, maxScriptBrackets, &m); err != nil {
		return Script{}, true, fmt.Errorf("script metadata: %w", err)
	}
	if m.Dependencies, err = m.Tool.specifiers("dependencies", m.Dependencies, ""); err != nil {
		return Script{}, true, fmt.Errorf("script metadata: %w", err)
	}
	m.RequiresPython = strings.TrimSpace(m.RequiresPython)
	return m, true, nil
}

// scriptBlock returns the TOML text of the only block of type "script". In linear time it finds the same blocks as the
// specification's regular expression, (?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$. The tests
// compare the two.
func scriptBlock(source []byte) (text []byte, ok bool, err error) {
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf"))
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	lines := bytes.Split(source, []byte("\n"))
	// The end of the run of comment lines around line i, and its last line "# ///".
	runEnd, lastClose := 0, -1
	var near error // the first line that was meant to open a block, and opens none
	for i := 0; i < len(lines); i++ {
		kind, opens := blockType(lines[i])
		if !opens {
			if near == nil && nearOpening().Match(lines[i]) {
				near = fmt.Errorf("script metadata: line %d must be \"# /// script\" to open the block (got %.100q)", i+1, lines[i])
			}
			continue
		}
		if i >= runEnd {
			runEnd, lastClose = commentRun(lines, i)
		}
		if lastClose < i+2 { // a block needs at least one line of content
			if near == nil && lastClose <= i && kind == "script" {
				near = fmt.Errorf("script metadata: the block of line %d must end with a line \"# ///\", and each of its lines must begin with \"# \"", i+1)
			}
			continue
		}
		if kind == "script" {
			if ok {
				return nil, true, errors.New("script metadata: must be one block only")
			}
			text, ok = content(lines[i+1:lastClose]), true
		}
		i = lastClose
	}
	if ok {
		near = nil
	}
	return text, ok, near
}

// nearOpening is a line that a reader takes for the opening of a block.
var nearOpening = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^#[ \t]*///[ \t]*(?i:script)[ \t]*$`) })

// commentRun returns the end of the run of content lines from line i, and its last line that closes a block; -1: none.
func commentRun(lines [][]byte, i int) (end, lastClose int) {
	lastClose = -1
	for end = i; end < len(lines) && isContent(lines[end]); end++ {
		if string(lines[end]) == "# ///" {
			lastClose = end
		}
	}
	return end, lastClose
}

func isContent(line []byte) bool {
	return len(line) > 0 && line[0] == '#' && (len(line) == 1 || line[1] == ' ')
}

// blockType reports whether line opens a block, and returns the type of the block.
func blockType(line []byte) (kind string, opens bool) {
	rest, ok := bytes.CutPrefix(line, []byte("# /// "))
	if !ok || len(rest) == 0 {
		return "", false
	}
	for _, c := range rest {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' {
			return "", false
		}
	}
	return string(rest), true
}

// content returns the TOML text of the comment lines of a block.
func content(lines [][]byte) []byte {
	var b bytes.Buffer
	for _, line := range lines {
		line = line[1:]
		if len(line) > 0 {
			line = line[1:]
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.Bytes()
}
