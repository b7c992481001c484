package executor

import (
	"path"
	"strconv"
	"strings"
)

// LanguageOf returns the language of a file by the suffix of its name, LanguageDefault if that names none. Submit gives it to an
// Entrypoint without a Language.
func LanguageOf(name string) Language {
	switch strings.ToLower(path.Ext(name)) {
	case ".js", ".cjs", ".mjs":
		return LanguageJavaScript
	case ".sh", ".bash":
		return LanguageShell
	}
	return LanguageDefault
}

// ChosenEntrypoint returns the line that a backend writes to stderr, before the program's own output, when it has chosen
// the entrypoint among several .py files. A name with control characters is quoted.
func ChosenEntrypoint(name string) string {
	if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` {
		name = quoted
	}
	return name + " runs: the first of several .py files, none called main.py or __main__.py (entrypoint names another)\n"
}
