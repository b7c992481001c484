package tests

import (
	"os/exec"
	"testing"

	"github.com/python-executor/python-executor/core/executor/terminaltest"
)

// TestAConsoleAtATerminalInEveryLanguage types into `session exec -i` what somebody would, and waits for what appears.
func TestAConsoleAtATerminalInEveryLanguage(t *testing.T) {
	type input struct {
		// lines are typed one after the other; asks is the prompt that each but the last one is answered with.
		lines []string
		asks  string
		// shows is what appears then. It is not what was typed, which appears as well.
		shows string
	}
	s := startServer(t, nil)
	for language, say := range map[string]struct {
		prompt string
		inputs []input
		// loop shows "looping" and never ends.
		loop string
		// state is what is left of the inputs.
		state input
	}{
		"python": {
			prompt: ">>> ",
			inputs: []input{
				{lines: []string{"x = 100"}},
				{lines: []string{"x + 1"}, shows: "101"},
				{lines: []string{"def f(a):", "    return [a,", "", "            x]", ""}, asks: "... "},
				{lines: []string{"f(7)"}, shows: "[7, 100]"},
				{lines: []string{"for c in 'ab':", "    print(c * 3)", ""}, asks: "... ", shows: "aaa\r\nbbb"},
				{lines: []string{"print('''one", "two''')"}, asks: "... ", shows: "one\r\ntwo"},
				{lines: []string{"1 / 0"}, shows: "ZeroDivisionError: division by zero"},
				{lines: []string{"print('no', 'end', end='')"}, shows: "no end"},
			},
			loop:  "print('loop' + 'ing', flush=True); exec('while True: x += 1')",
			state: input{lines: []string{"x > 100, f(1)[0], 'same'"}, shows: "(True, 1, 'same')"},
		},
		"javascript": {
			prompt: "> ",
			inputs: []input{
				{lines: []string{"let x = 100"}},
				{lines: []string{"x + 1"}, shows: "101"},
				{lines: []string{"function f(a) {", "  return [a,", "", "    x]", "}"}, asks: "... "},
				{lines: []string{"f(7)"}, shows: "[ 7, 100 ]"},
				{lines: []string{"for (const c of 'ab') {", "  console.log(c.repeat(3))", "}"}, asks: "... ", shows: "aaa\r\nbbb"},
				{lines: []string{"console.log(`one", "two`)"}, asks: "... ", shows: "one\r\ntwo"},
				{lines: []string{"throw new RangeError('far')"}, shows: "RangeError: far"},
				{lines: []string{"process.stdout.write('no' + ' end'); undefined"}, shows: "no end"},
			},
			loop:  "console.log('loop' + 'ing'); for (;;) x += 1",
			state: input{lines: []string{"[x > 100, f(1)[0], 'same']"}, shows: "[ true, 1, 'same' ]"},
		},
		"shell": {
			prompt: "$ ",
			inputs: []input{
				{lines: []string{"x=100"}},
				{lines: []string{"echo $((x + 1))"}, shows: "101"},
				{lines: []string{"f() {", "  echo \"<$1>\" \\", "", "  echo $x", "}"}, asks: "> "},
				{lines: []string{"f 7"}, shows: "<7>\r\n100"},
				{lines: []string{"cat <<END", "x is $x", "  twice: $x$x", "END"}, asks: "> ", shows: "x is 100\r\n  twice: 100100"},
				{lines: []string{"for c in a b; do", "  echo $c$c$c", "done"}, asks: "> ", shows: "aaa\r\nbbb"},
				{lines: []string{"echo 'one", "two'"}, asks: "> ", shows: "one\r\ntwo"},
				{lines: []string{"cd /nowhere"}, shows: "/nowhere: No such file or directory"},
				{lines: []string{"printf 'no %s' end"}, shows: "no end"},
			},
			loop:  "echo loop''ing; while :; do x=$((x + 1)); done",
			state: input{lines: []string{"[ $x -gt 100 ] && f 1 | head -1"}, shows: "<1>"},
		},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath("node"); language == "javascript" {
				skipWithout(t, "node", err == nil)
			}
			id := s.session(`{"language":"` + language + `"}`)
			cmd := exec.CommandContext(t.Context(), binary, "session", "exec", "-i", id)
			cmd.Env = environ("PYEXEC_SERVER="+s.url, "TERM=xterm", "XDG_STATE_HOME="+t.TempDir())
			y := terminaltest.Start(t, cmd)
			y.Sees("in session " + id)
			y.Sees("\n" + say.prompt) // a prompt that is drawn again while somebody types does not begin a line
			enter := func(in input) {
				t.Helper()
				for i, line := range in.lines {
					if i > 0 {
						y.Sees("\n" + in.asks)
					}
					y.Types(line + "\r")
				}
				y.Sees(in.shows)
				y.Sees("\n" + say.prompt)
			}
			for _, in := range say.inputs {
				enter(in)
			}
			// Ctrl-C drops what is not whole yet.
			y.Types("if [ (" + terminaltest.CtrlC)
			y.Sees("^C")
			y.Sees("\n" + say.prompt)
			// It interrupts what runs, more than once, and the session goes on as it was.
			for range 2 {
				y.Types(say.loop + "\r")
				y.Sees("\nlooping")
				y.Types(terminaltest.CtrlC)
				y.Sees("python-executor: interrupted")
				y.Sees("\n" + say.prompt)
			}
			enter(say.state)
			// Ctrl-D leaves; the session stays.
			y.Types(terminaltest.CtrlD)
			y.Leaves(0)
			if v := s.look(id); v["status"] != "active" || v["restarts"] != 0.0 || v["running"] != nil {
				t.Errorf("%v", v)
			}
		})
	}
}
