package engine

import (
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// maxInlineCode bounds Code in JavaScript and shell, which is an argument of its interpreter. Linux takes 128 KiB.
const maxInlineCode = 120 << 10

// The programs of a shell that run a file and a text, by bash where there is one. Their arguments are the file, or the text and a name for
// it, and those of the program.
const (
	shellFile = `if command -v bash >/dev/null 2>&1; then exec bash "$0" "$@"; fi; exec sh "$0" "$@"`
	shellText = `if command -v bash >/dev/null 2>&1; then exec bash -c "$@"; fi; exec sh -c "$@"`
)

// interpret makes a command of a program in JavaScript or shell. Backends run Python by themselves, and other languages in Sessions only.
func interpret(s *executor.Spec, invalid *executor.Problems) {
	if s.Language != executor.LanguageJavaScript && s.Language != executor.LanguageShell || s.Session != "" || s.Script != "" || len(s.Command) > 0 {
		return
	}
	if s.Code == "" && s.Entrypoint == "" {
		invalid.Add("entrypoint", "must name the file that runs, because the language is %s", s.Language)
		return
	}
	if len(s.Code) > maxInlineCode {
		invalid.Add("code", "must be at most %d bytes in %s: send it as a file, and name that as entrypoint", maxInlineCode, s.Language)
		return
	}
	noPythonPackages(*s, invalid)
	var command []string
	switch {
	case s.Language == executor.LanguageJavaScript && s.Code != "":
		command = []string{"node", "-e", s.Code, "--"}
	case s.Language == executor.LanguageJavaScript:
		command = []string{"node", s.Entrypoint}
	case s.Code != "":
		command = []string{"sh", "-c", shellText, "sh", s.Code, "main.sh"}
	default:
		command = []string{"sh", "-c", shellFile, s.Entrypoint}
	}
	s.Command = slices.Concat(command, s.Args)
	s.Code, s.Entrypoint, s.Args, s.Language = "", "", nil, executor.LanguageDefault
}

// noPythonPackages refuses requirements of JavaScript, which would be looked for among Python's packages. A shell may call programs of these.
func noPythonPackages(s executor.Spec, p *executor.Problems) {
	if s.Language == executor.LanguageJavaScript && s.Requirements != "" {
		p.Add("requirements_txt", "must be empty in JavaScript: %s", executor.NoNPM)
	}
}
