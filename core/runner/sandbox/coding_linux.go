package sandbox

import (
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// codingLine is a declaration of an encoding (PEP 263), and noCode a line that may come before it. Few runners need them.
var (
	codingLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)`) })
	noCode     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[ \t\f]*(#|$)`) })
)

// declared returns code with the encoding that its file will have. code is text, and the file is UTF-8. An editor whose file had another
// encoding has left its declaration, by which Python would read other characters. ASCII is what it is in any encoding.
func declared(code string) string {
	if !strings.ContainsFunc(code, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return code
	}
	begin := 0
	for range 2 { // Python looks at two lines
		line := code[begin:]
		end := strings.IndexAny(line, "\r\n")
		if end >= 0 {
			line = line[:end]
		}
		if m := codingLine().FindStringSubmatchIndex(line); m != nil {
			return code[:begin+m[2]] + "utf-8" + code[begin+m[3]:]
		}
		if end < 0 || !noCode().MatchString(line) {
			break
		}
		begin += end + 1
		if strings.HasPrefix(code[begin-1:], "\r\n") {
			begin++
		}
	}
	return code
}
