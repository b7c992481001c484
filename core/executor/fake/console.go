package fake

import (
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// consoleCell removes the mark of a console from code, and reports whether the code needs another line. It does if a bracket or
// a string in triple quotes is open, or if the last line ends in a backslash.
func consoleCell(language executor.Language, code string) (text string, wants bool) {
	text, console := strings.CutPrefix(code, executor.ConsoleCell(language, ""))
	if !console || text == code {
		return code, false
	}
	open := strings.Count(text, "(") + strings.Count(text, "{") - strings.Count(text, ")") - strings.Count(text, "}")
	return text, open > 0 || strings.Count(text, "'''")%2 == 1 || strings.HasSuffix(text, "\\")
}
