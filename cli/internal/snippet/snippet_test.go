package snippet

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// whole are inputs that are whole and whose beginnings of some lines are not, but where "|" stands: there they are whole,
// too, and may go on.
var whole = map[executor.Language][]string{
	executor.LanguagePython: {
		"1", "x = 1", "", "# only a comment", "   ", "print('a:')", "d = {'a':\n1}", "f(1,\n  2)", "x = [\n1,\n\n2]", "s = '''a\nb'''", "s = \"\"\"a\n'''\nb\\\"\"\"\"",
		"s = 'it''s # no comment'  # a comment:", "x = 1 + \\\n2", "if x:\n  y\n", "if x: y\n", "for i in r:\n  a\n\t\n", "while 1:\n  if 2:\n    3\n  else:\n    4\n",
		"def f(a,\n      b):\n  return a\n", "@dec\ndef f():\n  pass\n", "@dec\n@other(1)\nclass A:\n  x: int = 1\n", "class A: pass\n", "async def f():\n  await g()\n",
		"with a as b, \\\n  c as d:\n  pass\n", "try:\n  1\nexcept E:\n  2\nfinally:\n  3\n", "match x:\n  case 1:\n    pass\n  case _:\n    pass\n", "match = 3", "iffy = 1", "format_ = 2",
		"x = y[1:2]", "lambda x: x", "d = {1: 2}", "a = b; c = d", "r'\\''", "r\"\\\\\"", "b'x'", "f'{x}'", "f'{x!r:>{w}}'", "x: int", "(yield_ :=\n 5)", "'''\n'''", "'a\\\nb'",
		"if x:\n  '''\n\n'''\n", "if x:\n  f(\n\n1)\n", "def f():\n  # c\n  return {\n    1: 2,\n  }\n", "for i in r: print(i)\n", "del x", "await f()", "[x for x in\n y if\n x]", "import os, \\\n  sys",
		"x = (1,\n # )\n 2)", "print(\"\"\"a\"\"\" 'b' \"c\")", "def f(): return 1\n", "if (a and\n    b):\n  c\n", "x = 'é'", "π = 3", "class é:\n  pass\n", "assert x, 'm'", "from a import (b,\nc)", "global x",
	},
	executor.LanguageJavaScript: {
		"1", "", "// c", "const x = 1", "x = {\na: 1,\nb: [1,\n2]\n}", "f(\n1)", "function f(a, b) {\n  return a\n}", "const f = (a) => {\n  a\n}", "const f = a =>\n  a", "`a\n${b + `c\n${d}`}\ne`",
		"/* a\nb */ 1", "'it\\'s'", "\"a // b\"", "/[/]\"(/.test(x)", "x / 2 / 3", "a = /re\\/(/g", "if (x) { y }", "if (x)\n  y", "if (x) {\n y\n} else {\n z\n}", "for (const a of b) {\n}", "for (;;)\n  break",
		"while (x)\n  y--", "do {\n x++\n} while (x < 3)", "class A extends B {\n  #p = 1\n  m() { return this.#p }\n}", "class A\n{\n}", "function f()\n{\n}", "async function f() {\n}", "function* g() {\n  yield 1\n}",
		"x = 1 +\n2", "x = a ? b :\n c", "a && b ||\n c", "x++", "x--", "a.b\n", "a.if", "({a: 1})", "[1, 2].map(x => x * 2)", "try {\n} catch (e) {\n} finally {\n}", "switch (x) {\n case 1: break\n default:\n}", "x = y\n", "!a", "typeof x",
		"const {a, b: [c]} = d", "x => ({a: 1})", "`${a}` + `b`", "x = a\n  .b()\n  .c()", "label: for (;;) { break label }", "new Date()", "x ?? y", "a?.b?.(c)", "throw new Error('x')", "const s = `a\\`b`", "/a/u", "return_ = 1", "x = (1, 2)", "f(...a)", "var a = [\n\n]",
		"const g = async () => {\n  for await (const x of y) {\n  }\n}", "(function () {\n})()", "a = b\n/c/d", "do x++; while (x < 5)", "/[(]/", "x = {'a': \"}\"}",
	},
	executor.LanguageShell: {
		"ls", "", "# c", "echo 'a\nb'", "echo \"a\nb $(ls\n) c\"", "if true; then\n  echo\nfi", "if true\nthen\n a\nelif b\nthen\n c\nelse\n d\nfi", "for i in a b; do\n echo $i\ndone", "for ((i=0;i<3;i++)); do\n echo\ndone", "while read x; do\n echo\ndone < f",
		"until a\ndo\n b\ndone", "case $x in\n a) b ;;\n c|d)\n  e\n  ;;\n *) f;;\nesac", "f() {\n echo\n}", "f()\n{\n echo\n}", "function f {\n echo\n}", "(\n a\n)", "{\n a\n}", "a |\n b", "a &&\n b", "a ||\n b", "cat <<EOF\na'b\n$(\nEOF", "cat <<-'E F' ; echo", "cat <<\"X\" <<Y\na\nX\nb\nY",
		"echo if then fi", "echo $((1 + 2))", "x=$(a | b)", "x=`a\nb`", "echo ${x:-a}", "[[ a == b ]]", "[[ a &&\n b ]]", "echo a#b", "a; b & c", "x=(1\n2)", "cat <<< 'x'", "echo \"it's\"", "echo 'say \"x\"'", "echo $'a\\'b'", "a > f 2>&1", "diff <(a) <(b)", "! a", "time a", "echo {a,b}",
		"if a; then b; fi; if c; then\n d\nfi", "select x in a; do\n b\ndone", "if [ \"$x\" = ')' ]; then\n a\nfi", "case x in (a) b;; esac", "export X='y'", "echo done", "trap 'a\nb' EXIT", "cat <<EOF | grep x\nx\nEOF", "while :; do if a; then break; fi\ndone", "echo \\\\", "for x; do\n a\ndone", "a() { b; }",
	},
}

func lines(text string, n int) string {
	return strings.Join(strings.Split(text, "\n")[:n], "\n")
}

// TestAWholeInputIsWhole holds every input to being whole at its end.
func TestAWholeInputIsWhole(t *testing.T) {
	t.Parallel()
	for language, texts := range whole {
		for _, text := range texts {
			if text == "cat <<-'E F' ; echo" { // its document has not come
				continue
			}
			if NeedsMore(language, text) {
				t.Errorf("%s wants more behind %q", language, text)
			}
		}
	}
}

func TestWhatIsOpenWantsMore(t *testing.T) {
	t.Parallel()
	for language, texts := range map[executor.Language][]string{
		executor.LanguagePython: {"(", "f(1,", "x = [", "'''", "'''a\nb", "x = 1 \\", "if x:", "if x:\n  y", "def f():", "@dec", "@dec\ndef f():\n  x", "class A: pass", "for i in r: print(i)", "if x:\n  y\nelse:", "while 1: # c",
			"try:\n  1", "match x:", "{'a': 1,", "if x:\n\n  f(\n", "with a as b,\\", "async def f():", "f'''", "'a\\", "'a\\\n"},
		executor.LanguageJavaScript: {"(", "{", "f(1,", "`a", "`a${", "`a${b", "`${`", "/* a", "if (x)", "if (x) {", "x = 1 +", "x =", "a =>", "a &&", "for (;;)", "function f()", "function f", "class A", "class A extends B", "do", "do {", "else", "a.", "a,", "async", "const", "a ? b :", "'a\\", "while (x)", "try", "!", "..."},
		executor.LanguageShell:      {"'", "\"a", "echo $(", "echo `a", "if a", "if a; then", "if a; then b", "for i in a", "for i in a; do", "while a; do", "case x in", "case x in a)", "f() {", "f()", "(", "{", "a |", "a &&", "a ||", "a \\", "cat <<EOF", "cat <<EOF\na", "echo ${x", "cat <<A <<B\na\nA", "if a; then\n fi2", "function f", "x=(1", "echo \"$(a", "[[ a &&"},
	} {
		for _, text := range texts {
			if !NeedsMore(language, text) {
				t.Errorf("%s takes %q for whole", language, text)
			}
		}
	}
}

// TestWhatIsWrongIsHandedOver: no further line can help, so the interpreter is to say what is wrong.
func TestWhatIsWrongIsHandedOver(t *testing.T) {
	t.Parallel()
	for language, texts := range map[executor.Language][]string{
		executor.LanguagePython:     {")", "x = 'abc", "(1]2)\n)", "f(1))", "x = \\ 1", "(']')]"},
		executor.LanguageJavaScript: {")", "}", "f(]", "'abc", "x = /abc", "(}", "`${]"},
		executor.LanguageShell:      {")", "fi", "done", "}", "esac", "if a; then done"},
		"cobol":                     {"IF X"},
	} {
		for _, text := range texts {
			if NeedsMore(language, text) {
				t.Errorf("%s waits behind %q", language, text)
			}
		}
	}
}

// The oracles say of a text: "whole", "more", or "" where they cannot.
const pythonOracle = `
import codeop, json, sys, warnings
warnings.simplefilter("ignore")
out = []
for text in json.load(sys.stdin):
    try:
        out.append("more" if codeop.compile_command(text, symbol="single") is None else "whole")
    except (SyntaxError, ValueError, OverflowError):
        out.append("")
print(json.dumps(out))`

const nodeOracle = `
const vm = require("vm")
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"))
console.log(JSON.stringify(texts.map(text => {
  try { new vm.Script(text); return "whole" } catch (e) {
    return /Unexpected end of input|Unterminated template/.test(e.message) ? "more" : ""
  }
})))`

const bashOracle = `
import json, subprocess, sys
out = []
for text in json.load(sys.stdin):
    p = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
    p2 = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    said = p.stderr + p2.stderr
    if "unexpected end of file" in said or "unexpected EOF" in said or "delimited by end-of-file" in said:
        out.append("more")
    else:
        out.append("" if said else "whole")
print(json.dumps(out))`

// TestTheInterpretersAgree compares with what Python's own console, Node and bash say of every beginning of every input.
func TestTheInterpretersAgree(t *testing.T) {
	t.Parallel()
	for _, oracle := range []struct {
		language executor.Language
		command  []string
		// excuse: the oracle is known to be of another opinion.
		excuse func(text string) bool
	}{
		{executor.LanguagePython, []string{"python3", "-c", pythonOracle}, func(text string) bool {
			// What only a file may have, and what versions differ about.
			// A line of white space ends a block here, as an empty one does.
			last := text[strings.LastIndexByte(text, '\n')+1:]
			return strings.Contains(text, "await") || strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#") || last != "" && strings.TrimSpace(last) == ""
		}},
		{executor.LanguageJavaScript, []string{"node", "-e", nodeOracle}, func(string) bool { return false }},
		{executor.LanguageShell, []string{"python3", "-c", bashOracle}, func(text string) bool { return strings.HasSuffix(text, "\\") }},
	} {
		t.Run(string(oracle.language), func(t *testing.T) {
			t.Parallel()
			for _, tool := range []string{oracle.command[0], map[executor.Language]string{executor.LanguageShell: "bash"}[oracle.language]} {
				if _, err := exec.LookPath(tool); tool != "" && err != nil {
					t.Skipf("%s is not here: %v", tool, err)
				}
			}
			var texts []string
			for _, text := range whole[oracle.language] {
				for n := range strings.Count(text, "\n") + 1 {
					texts = append(texts, lines(text, n+1))
				}
			}
			input, err := json.Marshal(texts)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), oracle.command[0], oracle.command[1:]...)
			cmd.Stdin, cmd.Stderr = strings.NewReader(string(input)), os.Stderr
			raw, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			if err := json.Unmarshal(raw, &said); err != nil || len(said) != len(texts) {
				t.Fatal(len(said), err)
			}
			agreed := 0
			for i, text := range texts {
				if said[i] == "" || oracle.excuse(text) {
					continue
				}
				agreed++
				if got := NeedsMore(oracle.language, text); got != (said[i] == "more") {
					t.Errorf("%q: more is %t, %s says %s", text, got, oracle.language, said[i])
				}
			}
			if agreed < len(texts)*3/4 {
				t.Errorf("the oracle knows only %d of %d", agreed, len(texts))
			}
		})
	}
}

// FuzzNeedsMore: whatever is typed, the answer comes.
func FuzzNeedsMore(f *testing.F) {
	for _, texts := range whole {
		for _, text := range texts {
			f.Add(text)
		}
	}
	f.Fuzz(func(_ *testing.T, text string) {
		for language := range whole {
			NeedsMore(language, text)
		}
	})
}
