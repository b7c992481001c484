package cmd

import (
	"strings"
	"testing"
)

// TestTheConsoleKnowsWhatAShellLacks: whole inputs are whole, and none of their beginnings is, but for lines that end a command.
func TestTheConsoleKnowsWhatAShellLacks(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"ls", "# c", "echo 'a\nb'", "echo \"a\nb $(ls\n) c\"", "if true; then\n  echo\nfi", "if true\nthen\n a\nelif b\nthen\n c\nelse\n d\nfi", "for i in a b; do\n echo $i\ndone", "for ((i=0;i<3;i++)); do\n echo\ndone",
		"while read x; do\n echo\ndone < f", "until a\ndo\n b\ndone", "case $x in\n a) b ;;\n c|d)\n  e\n  ;;\n *) f;;\nesac", "f() {\n echo\n}", "f()\n{\n echo\n}", "function f {\n echo\n}", "(\n a\n)", "{\n a\n}", "a |\n b", "a &&\n b",
		"cat <<EOF\na'b\nEOF", "cat <<\"X\" <<Y\na\nX\nb\nY", "echo if then fi", "echo $((1 + 2))", "x=`a\nb`", "echo ${x:-a}", "[[ a &&\n b ]]", "echo a#b", "a; b & c", "x=(1\n2)", "cat <<< 'x'", "echo $'a\\'b'", "diff <(a) <(b)",
		"select x in a; do\n b\ndone", "case x in (a) b;; esac", "trap 'a\nb' EXIT", "echo \\\\", "for x; do\n a\ndone", "echo a \\\n\n", "echo \"<$1>\" \\\n b",
	} {
		lines := strings.Split(text, "\n")
		for n := range lines {
			part := strings.Join(lines[:n+1], "\n")
			if got := incompleteShell(part); got != (n < len(lines)-1) && lines[n] != "" {
				t.Errorf("%q of %q: wants more is %t", part, text, got)
			}
		}
	}
	for _, text := range []string{
		"'", "\"a", "echo $(", "echo `a", "if a", "if a; then", "if a; then b", "for i in a", "for i in a; do", "while a; do", "case x in", "case x in a)", "f() {", "f()", "(", "{", "a |", "a &&", "a ||", "a \\", "cat <<EOF", "cat <<EOF\na",
		"echo ${x", "cat <<A <<B\na\nA", "if a; then\n fi2", "function f", "x=(1", "echo \"$(a", "[[ a &&",
	} {
		if !incompleteShell(text) {
			t.Errorf("%q is taken for whole", text)
		}
	}
	for _, text := range []string{")", "fi", "done", "}", "esac", "if a; then done"} {
		if incompleteShell(text) {
			t.Errorf("%q waits for another line", text)
		}
	}
}
