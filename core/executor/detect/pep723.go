package detect

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// maxScript bounds the bytes of a block: a text of names makes a TOML reader remember a hundred times its size.
const maxScript = 256 << 10

// Script is what a program's own block of metadata (PEP 723) says.
type Script struct {
	// RequiresPython is a version specifier, or empty.
	RequiresPython string `toml:"requires-python"`
	// Dependencies is nil where the block does not speak of them, and empty where it says that there are none.
	Dependencies []string `toml:"dependencies"`
}

// Requirements returns the dependencies in requirements.txt form.
func (s Script) Requirements() string {
	if len(s.Dependencies) == 0 {
		return ""
	}
	return strings.Join(s.Dependencies, "\n") + "\n"
}

// ParseScript reads the script block of a Python source. ok is false where there is none.
func ParseScript(source []byte) (m Script, ok bool, err error) {
	text, ok, err := scriptBlock(source)
	if err != nil || !ok {
		return Script{}, ok, err
	}
	if len(text) > maxScript {
		return Script{}, true, fmt.Errorf("script metadata: more than %d bytes", maxScript)
	}
	if err := decodeTOML(text, maxScriptBrackets, &m); err != nil {
		return Script{}, true, fmt.Errorf("script metadata is not valid TOML: %w", err)
	}
	for i, d := range m.Dependencies {
		d = strings.TrimSpace(d)
		// A requirements file has options and continuation lines; a dependency specifier has neither, and must not
		// become one on its way through that form.
		if d == "" || strings.ContainsAny(d, "\n\r\\\x00") || d[0] == '-' || d[0] == '#' {
			return Script{}, true, fmt.Errorf("script metadata: dependencies[%d]: %q is not a dependency specifier", i, d)
		}
		m.Dependencies[i] = d
	}
	m.RequiresPython = strings.TrimSpace(m.RequiresPython)
	return m, true, nil
}

// scriptBlock returns the TOML text of the one block of type "script". It finds what the specification's regular
// expression finds, (?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$, in linear time; the tests
// compare the two.
func scriptBlock(source []byte) (text []byte, ok bool, err error) {
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf"))
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	lines := bytes.Split(source, []byte("\n"))
	// Of the run of comment lines that line i stands in: where it ends, and where it last says "# ///".
	runEnd, lastClose := 0, -1
	for i := 0; i < len(lines); i++ {
		kind, opens := blockType(lines[i])
		if !opens {
			continue
		}
		if i >= runEnd {
			runEnd, lastClose = commentRun(lines, i)
		}
		if lastClose < i+2 { // at least one line of content
			continue
		}
		if kind == "script" {
			if ok {
				return nil, true, errors.New("more than one block of script metadata")
			}
			text, ok = content(lines[i+1:lastClose]), true
		}
		i = lastClose
	}
	return text, ok, nil
}

// commentRun returns the end of the run of content lines from i, and the last of them that closes a block.
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

// blockType reports whether line opens a block, and of which type.
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
