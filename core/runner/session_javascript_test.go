//go:build linux

package runner

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/agent"
)

// openNode opens a JavaScript session; without Node the test is skipped, unless it is required.
func openNode(t *testing.T) *sessionRunner {
	t.Helper()
	return openSession(t, SessionStart{
		SessionID: "ctx-test", Language: executor.LanguageJavaScript, Interpreter: []string{needNode(t)}, Path: "/usr/bin:/bin", Limits: limits(),
	})
}

func needNode(t testing.TB) string {
	t.Helper()
	node, err := exec.LookPath("node")
	needtest.Need(t, err == nil, needtest.Node, "no program of that name")
	return node
}

func TestNodeKeepsWhatACellDeclares(t *testing.T) {
	r := openNode(t)
	r.wants(t, "const x = 100; let y = 1; class A { m() { return x } }", "", "")
	r.wants(t, "x + 1", "", "101")
	r.wants(t, "const x = 5; new A().m()", "", "5")
	r.wants(t, "console.log('out'); undefined", "out\n", "")
	r.wants(t, "await new Promise(done => setTimeout(() => done('later'), 5))", "", "'later'")
	r.wants(t, "require('fs').writeFileSync('m.mjs', 'export const v = 7'); (await import('./m.mjs')).v", "", "7")
	list, err := r.Variables(t.Context())
	var got []string
	for _, v := range list {
		got = append(got, v.Name+":"+v.Type+":"+v.Preview)
	}
	if err != nil || strings.Join(got, " ") != "A:function:[class A] x:number:5 y:number:1" {
		t.Error(got, err)
	}
}

func TestNodeShowsTheUsersFramesOnly(t *testing.T) {
	r := openNode(t)
	res, rec := r.cell(t, "function f() { throw new Error('bad') }\nf()")
	if want := "Uncaught Error: bad\n    at f (cell-1:1:22)\n    at cell-1:2:1\n"; describe(res) != "failed exit 1" || rec.stderr() != want {
		t.Errorf("%s %q", describe(res), rec.stderr())
	}
	res, rec = r.cell(t, "let = syntax error")
	if !strings.HasPrefix(rec.stderr(), "Uncaught SyntaxError: ") || !strings.Contains(rec.stderr(), "cell-2:1:") || describe(res) != "failed exit 1" {
		t.Errorf("%s %q", describe(res), rec.stderr())
	}
}

// A place behind the user's code is its end; frames of ours are not shown either where an error is part of a value.
func TestNodeShowsNothingOfOurs(t *testing.T) {
	r := openNode(t)
	for code, place := range map[string]string{"foo(": ":1:5", "let x = `a\nb": ":2:2", "if (1) {\n": ":2:1"} {
		if res, rec := r.cell(t, code); describe(res) != "failed exit 1" || !strings.HasSuffix(rec.stderr(), place+"\n") {
			t.Errorf("%q: %s %q, want a place %s", code, describe(res), rec.stderr(), place)
		}
	}
	for _, code := range []string{"[new Error('deep')]", "({ e: new Error('deep') })", "Promise.reject(new Error('deep'))"} {
		_, rec := r.cell(t, code)
		if got := rec.value(); !strings.Contains(got, "deep\n") || !strings.Contains(got, "at cell-") || strings.Contains(got, "node:inspector") || strings.Contains(got, "python-executor") {
			t.Errorf("%s: %s", code, got)
		}
	}
}

func TestNodeImportsAndMethodsOfThatName(t *testing.T) {
	r := openNode(t)
	r.wants(t, "const o = { import(x) { return x }, async import2() { return (await import('fs')).existsSync('/') } }; o.import(5)", "", "5")
	r.wants(t, "class M { static import(a, b = (1)) { return a + b } }; M.import(6)", "", "7")
	r.wants(t, "await o.import2()", "", "true")
	r.wants(t, "if ((await import('os')).EOL) { 'block' }", "", "'block'")
}

// What the user takes from the realm is theirs to miss: a cell ends all the same, and an error is told.
func TestNodeWithoutItsGlobals(t *testing.T) {
	r := openNode(t)
	r.wants(t, "delete globalThis.process", "", "true")
	res, rec := r.cell(t, "process")
	if describe(res) != "failed exit 1" || !strings.Contains(rec.stderr(), "process is not defined") {
		t.Errorf("%s %q", describe(res), rec.stderr())
	}
	start := cellOf("Array.prototype[Symbol.iterator] = null; Object.entries = null; ({})")
	start.Limits.Timeout = 0
	if res, rec = r.run(t, start, RunInput{}); describe(res) != "failed exit 1" || res.SessionState != executor.SessionStateKept {
		t.Errorf("%s %q %q", describe(res), res.SessionState, rec.stderr())
	}
}

func TestNodeLeavesToTheUsersListeners(t *testing.T) {
	r := openNode(t)
	for event, code := range map[string]string{"unhandledRejection": "Promise.reject(new Error('mine'))", "uncaughtException": "setImmediate(() => { throw new Error('mine') })"} {
		_, rec := r.cell(t, code+"; await new Promise(done => setTimeout(done, 20))")
		if !strings.Contains(rec.stderr(), "mine") {
			t.Errorf("%s: %q", event, rec.stderr())
		}
		_, rec = r.cell(t, "process.once('"+event+"', e => console.log(e.message)); "+code+"; await new Promise(done => setTimeout(done, 20))")
		if rec.stdout() != "mine\n" || rec.stderr() != "" {
			t.Errorf("%s: %q %q", event, rec.stdout(), rec.stderr())
		}
	}
}

func TestProcessExitEndsACellAndNotTheSession(t *testing.T) {
	r := openNode(t)
	r.wants(t, "let x = 1", "", "")
	for _, code := range []string{"process.exit(3)", "try { process.exit(3) } finally { }", "await new Promise(() => setTimeout(() => process.exit(3), 5))"} {
		if res, rec := r.cell(t, code); describe(res) != "failed exit 3" || rec.stderr() != "" || res.SessionState != executor.SessionStateKept {
			t.Errorf("%s: %s %q", code, describe(res), rec.stderr())
		}
	}
	r.wants(t, "x", "", "1")
}

func TestNodeIsInterrupted(t *testing.T) {
	r := openNode(t)
	r.wants(t, "let x = 1", "", "")
	for _, code := range []string{"while (true) {}", "await new Promise(() => {})", "require('child_process').execSync('sleep 1000000')"} {
		res, rec := r.told(t, cellOf("console.log('up'); "+code), said{"up", agent.LimitTimeout})
		if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateKept || !strings.Contains(rec.stderr(), "interrupted") && !strings.Contains(rec.stderr(), "signal: 'SIGINT'") {
			t.Errorf("%s: %s %q %q", code, describe(res), res.SessionState, rec.stderr())
		}
	}
	r.wants(t, "x", "", "1")
}

func TestNodeReadsStandardInput(t *testing.T) {
	r := openNode(t)
	for _, code := range []string{
		"require('fs').readFileSync(0, 'utf8')",
		"require('fs').readFileSync('/dev/stdin', 'utf8') + require('fs').readFileSync('/dev/stdin', 'utf8')",
		"let text = ''; for await (const piece of process.stdin) text += piece; text",
		"(await require('readline/promises').createInterface({ input: process.stdin }).question('')) + '\\nrest\\n'",
	} {
		res, rec := r.run(t, cellOf(code), RunInput{Stdin: strings.NewReader("line\nrest\n")})
		if rec.value() != `'line\nrest\n'` {
			t.Errorf("%s: %s %q %q", code, describe(res), rec.value(), rec.stderr())
		}
	}
	r.wants(t, "require('fs').readFileSync(0, 'utf8')", "", "''")
}

func TestNodePrintsLaterIntoTheNextExecution(t *testing.T) {
	r := openNode(t)
	r.wants(t, "const fs2 = require('fs'); const timer = setInterval(() => { if (fs2.existsSync('go')) { clearInterval(timer); console.log('later'); fs2.writeFileSync('done', '') } }, 1); undefined", "", "")
	r.run(t, beside("> go; while [ ! -e done ]; do :; done"), RunInput{})
	_, rec := r.cell(t, "console.log('now')")
	if rec.stdout() != "later\nnow\n" || rec.earlier != "later\n" {
		t.Errorf("%q, earlier %q", rec.stdout(), rec.earlier)
	}
}
