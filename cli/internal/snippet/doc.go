// Package snippet tells whether the lines that somebody has typed so far are a whole input, as the consoles of Python,
// Node and bash do: a bracket, a string, a block or a here-document that is open wants another line.
//
// It looks at tokens, not at grammar, and knows nothing of sessions or terminals. Where it is in doubt it says whole: the
// interpreter then says what is wrong, which is better than a console that waits for nothing.
package snippet

import "github.com/python-executor/python-executor/core/executor"

// NeedsMore reports whether text, lines without a final line end, wants another line. In Python an empty last line ends a
// block.
func NeedsMore(language executor.Language, text string) bool {
	switch language {
	case executor.LanguageJavaScript:
		return javascript(text)
	case executor.LanguageShell:
		return shell(text)
	case executor.LanguagePython, executor.LanguageDefault:
		return python(text)
	}
	return false
}
