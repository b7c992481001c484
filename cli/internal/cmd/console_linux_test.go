package cmd

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/executor"
)

func TestAConsoleOfAPipe(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	run := func(stdin string, args ...string) outcome {
		t.Helper()
		return execute(t, t.Context(), bundle, stdin, append([]string{"session", "exec", "-i", id}, args...)...)
	}
	for _, test := range []struct {
		name, stdin string
		want        outcome
	}{
		{"one after the other", "set x 1\n\n\nadd x 1\nget x\n", outcome{0, "2\n", ""}},
		{"without a last line end", "get x", outcome{0, "2\n", ""}},
		{"several lines are one", "print (\nprint )", outcome{0, "(\n)\n", ""}},
		{"lines of Windows", "get x\r\nget x\r\n", outcome{0, "2\n2\n", ""}},
		{"a failure ends nothing, and the last one counts", "exit 3\nprint on", outcome{0, "on\n", ""}},
		{"the last one fails", "print on\nexit 3\n", outcome{3, "on\n", ""}},
		{"nothing", "\n\n", outcome{0, "", ""}},
		{"values", "value x\n", outcome{0, "2\n", ""}},
		{"exit() leaves", "print on\nexit(3)\nprint off\n", outcome{3, "on\n", ""}},
		{"quit leaves", "exit 4\nquit\nprint off\n", outcome{0, "", ""}},

		{"a question is answered by the next line", "display " + executor.AskType + ` "{\"prompt\":\"who? \",\"file\":\".pyexec-answer-1\"}"` + "\nme\ncat .pyexec-answer-1\n", outcome{0, "who? me\n", ""}},
		{"a question at the end has no answer", "display " + executor.AskType + ` "{\"prompt\":\"\",\"file\":\".pyexec-answer-1\"}"` + "\n", outcome{0, "", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if o := run(test.stdin); o != test.want {
				t.Errorf("%+v", o)
			}
		})
	}
	t.Run("a session that is lost ends it", func(t *testing.T) {
		if o := run("signal SEGV\nprint on\n"); o.status != 125 || strings.Contains(o.stdout, "on") {
			t.Errorf("%+v", o)
		}
	})
	t.Run("and one that is closed does not begin", func(t *testing.T) {
		execute(t, t.Context(), bundle, "", "session", "rm", id)
		if o := run("print on\n"); o.status != 125 || !strings.Contains(o.stderr, "closed") {
			t.Errorf("%+v", o)
		}
	})
}

// typed is a lineReader of a test: what somebody types, and when.
type scripted struct {
	pasted     bool
	lines      []string
	prompts    []string
	remembered []string
}

func (y *scripted) line(_ context.Context, prompt string) (string, error) {
	y.prompts = append(y.prompts, prompt)
	if len(y.lines) == 0 {
		return "", io.EOF
	}
	line := y.lines[0]
	y.lines = y.lines[1:]
	if line == "^C" {
		return "", errDropped
	}
	return line, nil
}

func (y *scripted) pending(context.Context) (bool, error) { return y.pasted && len(y.lines) > 0, nil }

func (y *scripted) remember(line string) { y.remembered = append(y.remembered, line) }

func (y *scripted) close() error { return nil }

// consoleOn returns a console in front of a session of a server with a fake.
func consoleOn(t *testing.T, bundle app.Bundle, id string, language executor.Language, out, errs io.Writer, lines ...string) (*console, *scripted, chan struct{}) {
	t.Helper()
	g := &global{IO: IO{Out: out, Err: errs}, bundle: bundle, server: os.Getenv("PYEXEC_SERVER")}
	svc, err := g.openServer("test")
	if err != nil {
		t.Fatal(err)
	}
	y := &scripted{lines: lines}
	interrupts := make(chan struct{}, 1)
	return &console{g: g, svc: svc, id: id, language: language, base: executor.Spec{Session: id}, lines: y, shown: &displayed{g: g}, interrupts: interrupts}, y, interrupts
}

func TestAConsoleAsksForMore(t *testing.T) {
	bundle := sessionServer(t)
	for language, test := range map[executor.Language]struct {
		lines, prompts string
	}{
		executor.LanguagePython:     {"print 1|# if x:|print '''|'''|", ">>> |>>> |>>> |... |>>> |>>> "},
		executor.LanguageJavaScript: {"print 1|print {|print }", "> |> |... |> "},
		executor.LanguageShell:      {"print 1|print '|print '", "$ |$ |> |$ "},
	} {
		id := opened(t, bundle, "--language", string(language))
		var out, errs bytes.Buffer
		c, y, _ := consoleOn(t, bundle, id, language, &out, &errs, strings.Split(test.lines, "|")...)
		if err := c.loop(t.Context()); err != nil {
			t.Errorf("%s: %v", language, err)
		}
		if got := strings.Join(y.prompts, "|"); got != test.prompts {
			t.Errorf("%s: prompts %q, want %q", language, got, test.prompts)
		}
		if !strings.HasPrefix(out.String(), "1\n") || y.remembered[0] != "print 1" {
			t.Errorf("%s: %q, remembered %q", language, out.String(), y.remembered)
		}
	}
}

func TestCtrlCInAConsole(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	var errs bytes.Buffer
	out := &lockedBuffer{}
	c, _, interrupts := consoleOn(t, bundle, id, executor.LanguagePython, out, &errs, "print (", "^C", "set x 5", "write up", "print hung\nhang", "get x")
	out.on = func(text string) {
		if strings.HasSuffix(text, "hung\n") {
			interrupts <- struct{}{}
		}
	}
	if err := c.loop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := out.b.String(); got != "up\nhung\n5\n" { // "up" had no line end
		t.Errorf("%q", got)
	}
	if errs.String() != "python-executor: interrupted\n" {
		t.Errorf("%q", errs.String())
	}
}

func TestAConsoleOutlivesALostSession(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	var out, errs bytes.Buffer
	c, _, _ := consoleOn(t, bundle, id, executor.LanguagePython, &out, &errs, "signal SEGV", "print lost")
	if err := c.loop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := errs.String(); !strings.Contains(s, "interpreter died of SIGSEGV") || !strings.Contains(s, "(conflict)") || strings.Contains(out.String(), "lost") {
		t.Errorf("%q %q", out.String(), s)
	}
	if o := execute(t, t.Context(), bundle, "", "session", "restart", id); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	c, _, _ = consoleOn(t, bundle, id, executor.LanguagePython, &out, &errs, "print back")
	if err := c.loop(t.Context()); err != nil || !strings.Contains(out.String(), "back") {
		t.Errorf("%q %v", out.String(), err)
	}
	execute(t, t.Context(), bundle, "", "session", "rm", id)
	c, _, _ = consoleOn(t, bundle, id, executor.LanguagePython, &out, &errs, "print closed")
	if err := c.loop(t.Context()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("%v", err)
	}
}
