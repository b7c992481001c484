package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestOtherLanguagesRunAsCommandsOfTheirInterpreters(t *testing.T) {
	t.Parallel()
	args, long := []string{"a", "b"}, strings.Repeat("x", maxInlineCode+1)
	js, shell := executor.LanguageJavaScript, executor.LanguageShell
	for _, c := range []struct {
		spec  executor.Spec
		want  []string // nil: it is left as it is
		wrong string
	}{
		{executor.Spec{Language: js, Entrypoint: "a.js", Args: args}, []string{"node", "a.js", "a", "b"}, ""},
		{executor.Spec{Language: js, Code: "1", Args: args}, []string{"node", "-e", "1", "--", "a", "b"}, ""},
		{executor.Spec{Language: shell, Entrypoint: "a.sh", Args: args}, []string{"sh", "-c", shellFile, "a.sh", "a", "b"}, ""},
		{executor.Spec{Language: shell, Code: "echo", Args: args}, []string{"sh", "-c", shellText, "sh", "echo", "main.sh", "a", "b"}, ""},
		{executor.Spec{Language: js}, nil, "entrypoint"},
		{executor.Spec{Language: js, Code: long}, nil, "code"},
		{executor.Spec{Language: js, Code: "1", Requirements: "left-pad"}, nil, "requirements_txt"},
		{executor.Spec{Language: shell, Code: "echo", Requirements: "six"}, []string{"sh", "-c", shellText, "sh", "echo", "main.sh"}, ""},
		{executor.Spec{Language: executor.LanguagePython, Code: "1"}, nil, ""},
		{executor.Spec{Language: js, Code: "1", Session: "s"}, nil, ""},
		{executor.Spec{Language: js, Command: []string{"x"}}, []string{"x"}, ""},
	} {
		got, invalid := c.spec.Clone(), executor.Problems{}
		interpret(&got, &invalid)
		if c.want != nil && !slices.Equal(got.Command, c.want) || c.want == nil && c.wrong == "" && got.Code != c.spec.Code {
			t.Errorf("%+v: %q", c.spec, got.Command)
		}
		if wrong := len(invalid) > 0; wrong != (c.wrong != "") || wrong && invalid[0].Field != c.wrong {
			t.Errorf("%+v: %v", c.spec, invalid)
		}
	}
	for name, want := range map[string]executor.Language{"x/a.JS": js, "a.mjs": js, "a.sh": shell, "a.bash": shell, "a.py": "", "js": ""} {
		if got := executor.LanguageOf(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
