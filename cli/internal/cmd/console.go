package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
)

// lineReader reads lines from a terminal or a pipe.
type lineReader interface {
	// line returns a line without its end. io.EOF means that it is the last one, errDropped that the user pressed Ctrl-C.
	line(ctx context.Context, prompt string) (string, error)
	// pending reports whether another line is there already, because it was pasted or because the lines come from a pipe.
	pending(ctx context.Context) (bool, error)
	// remember adds a line to the history.
	remember(line string)
	// close restores the terminal and saves the history.
	close() error
}

// errDropped is returned when the user discards the present input with Ctrl-C.
var errDropped = errors.New("dropped")

// console is the interactive form of `session exec`.
type console struct {
	g        *global
	svc      executor.Service
	id       string
	language executor.Language
	base     executor.Spec
	lines    lineReader
	shown    *displayed
	// interrupts receives a value for each Ctrl-C while code runs; nil on a pipe.
	interrupts <-chan struct{}
	// ahead are lines that were read to see how a block goes on.
	ahead []readLine
	// last is the exit status of the last input; nil if it was 0.
	last error
}

// prompts holds the prompt of a first line and of a further line, by language.
var prompts = map[executor.Language][2]string{
	executor.LanguagePython:     {">>> ", "... "},
	executor.LanguageJavaScript: {"> ", "... "},
	executor.LanguageShell:      {"$ ", "> "},
}

// interact implements `session exec -i`.
func (o *sessionRunOptions) interact(ctx context.Context) error {
	svc, err := o.g.openServer("session exec")
	if err != nil {
		return err
	}
	o.command = nil
	base, err := o.spec()
	if err != nil {
		return err
	}
	if err := outputFolder(o.output); err != nil {
		return err
	}
	s, err := svc.GetSession(ctx, o.id)
	if err != nil {
		return err
	}
	if s.Status == executor.SessionClosed {
		return executor.Errorf(executor.Conflict, "the session is closed: %s", s.Reason)
	}
	if o.g.In == nil {
		return errors.New("standard input must be open")
	}
	c := &console{g: o.g, svc: svc, id: o.id, language: s.Language, base: base, shown: &displayed{g: o.g, dir: o.output}}
	interactive := o.g.InTerminal && o.g.OutTerminal
	if interactive {
		// On a pipe Ctrl-C ends the command.
		interrupts, release := takeInterrupts(ctx)
		defer release()
		c.interrupts = interrupts
	}
	c.lines = newLineReader(o.g, s.Language, interactive, func(word string) []string { return c.complete(ctx, word) })
	if interactive {
		c.greet(s) // the terminal is set up before, so that a prompt begins its line
	}
	err = c.loop(ctx)
	closed := c.lines.close()
	if err != nil {
		return err
	}
	if interactive {
		return closed
	}
	return errors.Join(c.last, closed)
}

func (c *console) greet(s executor.Session) {
	what := string(s.Language)
	if s.PythonVersion != "" && s.Language == executor.LanguagePython {
		what += " " + s.PythonVersion
	}
	c.g.note("%s in session %s on %s; Ctrl-C interrupts, Tab completes, Ctrl-D or %s leaves", what, s.ID, s.Backend, leaving(c.language))
	if s.Status == executor.SessionLost {
		c.g.note("the session is lost: %s (python-executor session restart %s)", s.Reason, s.ID)
	}
}

// loop reads and runs one input after the other until the lines end.
func (c *console) loop(ctx context.Context) error {
	ask, ok := prompts[c.language]
	if !ok {
		ask = prompts[executor.LanguageJavaScript]
	}
	var lines []string // of the input so far
	for {
		prompt := ask[0]
		if len(lines) > 0 {
			prompt = ask[1]
		}
		line, err := c.next(ctx, prompt)
		ended := errors.Is(err, io.EOF)
		if errors.Is(err, errDropped) {
			lines = nil
			continue
		}
		if err != nil && !ended {
			return err
		}
		if strings.TrimSpace(line) != "" {
			c.lines.remember(line)
		}
		if len(lines) == 0 {
			if status, leaves := leave(c.language, line); leaves {
				c.last = exit.With(status, nil)
				return nil
			}
		} else if c.language == executor.LanguagePython && !ended {
			goesOn, err := c.within(ctx, line, ask[1])
			if err != nil {
				return err
			}
			if goesOn {
				lines = append(lines, line)
				continue
			}
			if lines, err = c.before(ctx, lines, line); err != nil {
				return err
			}
		}
		lines = append(lines, line)
		text, more := strings.Join(lines, "\n"), false
		if strings.TrimSpace(text) != "" {
			if more, err = c.run(ctx, text, !ended); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		if !more {
			lines = nil
		}
	}
}

// run runs an input and shows its output. If the input may go on and wants another line, run shows nothing and reports more. An
// error means that the console, and not the code, has failed; it ends the console.
func (c *console) run(ctx context.Context, text string, mayGoOn bool) (more bool, err error) {
	if mayGoOn && c.language == executor.LanguageShell && incompleteShell(text) {
		return true, nil
	}
	spec := c.base
	if spec.Code = text; mayGoOn {
		spec.Code = executor.ConsoleCell(c.language, text)
	}
	drain(c.interrupts)
	e, err := c.svc.Submit(ctx, spec, executor.Input{})
	if err != nil {
		return false, c.refused(ctx, err)
	}
	show := func(d executor.Display) error {
		if question, asks := d.Data[executor.AskType]; asks {
			return c.answer(ctx, e.ID, question)
		}
		if _, incomplete := d.Data[executor.IncompleteType]; incomplete && mayGoOn {
			more = true
			return nil
		}
		return c.shown.show(d)
	}
	f := follower{stdout: &lineEnd{w: c.g.Out}, stderr: &lineEnd{w: c.g.Err}, progress: newProgress(c.g), g: c.g, show: show, stopped: "interrupted"}
	release := c.interruptible(ctx, e.ID)
	result, err := f.follow(ctx, c.svc, e.ID)
	release()
	if is, gone := isOutputError(err); is {
		c.kill(ctx, e.ID)
		if gone {
			return false, exit.With(exit.BrokenPipe, nil)
		}
		return false, fmt.Errorf("write output: %w", err)
	}
	if err != nil {
		c.kill(ctx, e.ID)
		return false, err
	}
	if c.interrupts != nil {
		// The next prompt begins a line.
		finishLine(c.g.Out, f.stdout)
		finishLine(c.g.Err, f.stderr)
	}
	if more {
		return true, nil
	}
	f.report(result)
	c.last = exit.With(exit.OfResult(result), nil)
	return false, nil
}

// incompleteShell reports whether text wants another line, as a shell reads it. The driver of a shell cannot tell without
// running what comes before.
func incompleteShell(text string) bool {
	if backslashes := len(text) - len(strings.TrimRight(text, `\`)); backslashes%2 == 1 {
		return true
	}
	_, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	wrong, _ := errors.AsType[syntax.ParseError](err)
	return syntax.IsIncomplete(err) || strings.HasPrefix(wrong.Text, "unclosed here-document") // IsIncomplete misses quoted ones
}

// refused returns err if it ends the console. The console goes on, and prints err, if a later input may succeed: a lost session
// can be restarted by another client, and a full server has room again.
func (c *console) refused(ctx context.Context, err error) error {
	if c.interrupts == nil || ctx.Err() != nil {
		return err
	}
	switch executor.CodeOf(err) {
	case executor.Exhausted, executor.Unavailable, executor.Invalid, executor.Unimplemented:
	case executor.Conflict:
		if s, getErr := c.svc.GetSession(ctx, c.id); getErr != nil || s.Status == executor.SessionClosed {
			return err
		}
	default:
		return err
	}
	fmt.Fprintln(c.g.Err, "python-executor: "+clean(err.Error())+kind(err))
	return nil
}

// interruptible lets Ctrl-C interrupt the execution id until release is called.
func (c *console) interruptible(ctx context.Context, id string) (release func()) {
	if c.interrupts == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-c.interrupts:
			}
			if _, err := c.svc.Cancel(ctx, id); err != nil && ctx.Err() == nil {
				fmt.Fprintf(c.g.Err, "python-executor: interrupt: %s\n", clean(err.Error()))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// kill ends an execution that the console does not follow any more.
func (c *console) kill(ctx context.Context, id string) {
	bounded, cancel := stop.Within(ctx, killTimeout, errKill)
	defer cancel()
	if _, err := c.svc.Cancel(bounded, id); err != nil {
		c.g.debug("interrupt %s: %s", id, err.Error())
	}
}

// drain discards a Ctrl-C that came after the end of its execution.
func drain(interrupts <-chan struct{}) {
	select {
	case <-interrupts:
	default:
	}
}

// lineEnd is a Writer that knows whether the last line has an end.
type lineEnd struct {
	w    io.Writer
	open bool
}

// Write implements io.Writer.
func (l *lineEnd) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.open = p[len(p)-1] != '\n'
	}
	return l.w.Write(p)
}

func finishLine(w, written io.Writer) {
	if l, ok := written.(*lineEnd); ok && l.open {
		fmt.Fprintln(w)
	}
}
