package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/snippet"
	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
)

// lineReader reads what somebody types, or what stands in a pipe.
type lineReader interface {
	// line returns a line without its end. io.EOF: there is no more; errDropped: Ctrl-C.
	line(ctx context.Context, prompt string) (string, error)
	// remember puts a line into the history.
	remember(line string)
	// close gives the terminal back and keeps the history.
	close() error
}

// errDropped: what was typed so far is to be forgotten.
var errDropped = errors.New("dropped")

// console is a session's interpreter with somebody in front of it.
type console struct {
	g        *global
	svc      executor.Service
	id       string
	language executor.Language
	base     executor.Spec
	lines    lineReader
	shown    *displayed
	// interrupts has a value for each Ctrl-C while code runs.
	interrupts <-chan struct{}
	// last is how the last input ended.
	last error
}

// prompts of the languages, for a first and for another line.
var prompts = map[executor.Language][2]string{
	executor.LanguagePython:     {">>> ", "... "},
	executor.LanguageJavaScript: {"> ", "... "},
	executor.LanguageShell:      {"$ ", "> "},
}

// interact is `session exec -i`.
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
	if o.output != "" {
		if err := outputFolder(o.output); err != nil {
			return err
		}
	}
	s, err := svc.GetSession(ctx, o.id)
	if err != nil {
		return err
	}
	if s.Status == executor.SessionClosed {
		return executor.Errorf(executor.Conflict, "the session is closed: %s", s.Reason)
	}
	if o.g.In == nil {
		return errors.New("there is no standard input")
	}
	c := &console{g: o.g, svc: svc, id: o.id, language: s.Language, base: base, shown: &displayed{g: o.g, dir: o.output}}
	interactive := o.g.InTerminal && o.g.OutTerminal
	if interactive {
		// Otherwise Ctrl-C ends us, as it ends anything that reads a pipe.
		interrupts, release := takeInterrupts(ctx)
		defer release()
		c.interrupts = interrupts
		c.greet(s)
	}
	c.lines = newLineReader(o.g, s.Language, interactive)
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
	c.g.note("%s in session %s on %s; Ctrl-C interrupts, Ctrl-D leaves", what, s.ID, s.Backend)
	if s.Status == executor.SessionLost {
		c.g.note("the session is lost: %s (python-executor session restart %s)", s.Reason, s.ID)
	}
}

// loop reads and runs one input after the other, until the lines end.
func (c *console) loop(ctx context.Context) error {
	for {
		text, err := c.input(ctx)
		ended := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, errDropped):
			continue
		case err != nil && !ended:
			return err
		}
		if strings.TrimSpace(text) != "" {
			if err := c.run(ctx, text); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// input reads lines until they are a whole input. With io.EOF the text is what there was.
func (c *console) input(ctx context.Context) (string, error) {
	ask, ok := prompts[c.language]
	if !ok {
		ask = prompts[executor.LanguageJavaScript]
	}
	prompt := ask[0]
	var lines []string
	for {
		line, err := c.lines.line(ctx, prompt)
		if errors.Is(err, io.EOF) {
			return strings.Join(append(lines, line), "\n"), err
		}
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(line) != "" {
			c.lines.remember(line)
		}
		lines = append(lines, line)
		text := strings.Join(lines, "\n")
		if strings.TrimSpace(text) == "" {
			lines = nil
			continue
		}
		if !snippet.NeedsMore(c.language, text) {
			return text, nil
		}
		prompt = ask[1]
	}
}

// run runs one input and shows what comes of it. An error ends the console: it, and not the code, has failed.
func (c *console) run(ctx context.Context, code string) error {
	spec := c.base
	spec.Code = code + "\n"
	drain(c.interrupts)
	e, err := c.svc.Submit(ctx, spec, executor.Input{})
	if err != nil {
		return c.refused(ctx, err)
	}
	f := follower{stdout: &lineEnd{w: c.g.Out}, stderr: &lineEnd{w: c.g.Err}, progress: newProgress(c.g), g: c.g, show: c.shown.show, stopped: "interrupted"}
	release := c.interruptible(ctx, e.ID)
	result, err := f.follow(ctx, c.svc, e.ID)
	release()
	if is, gone := isOutputError(err); is {
		c.kill(ctx, e.ID)
		if gone {
			return exit.With(exit.BrokenPipe, nil)
		}
		return fmt.Errorf("write output: %w", err)
	}
	if err != nil {
		c.kill(ctx, e.ID)
		return err
	}
	if c.interrupts != nil {
		// The next prompt stands at the margin.
		finishLine(c.g.Out, f.stdout)
		finishLine(c.g.Err, f.stderr)
	}
	f.report(result)
	c.last = exit.With(exit.OfResult(result), nil)
	return nil
}

// refused decides whether a refusal ends the console: a session that is lost can be restarted from elsewhere, and a full
// server has room again.
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

// interruptible has Ctrl-C interrupt the execution id until release is called.
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

// kill ends an execution that nobody follows any more.
func (c *console) kill(ctx context.Context, id string) {
	bounded, cancel := stop.Within(ctx, killTimeout, errKill)
	defer cancel()
	if _, err := c.svc.Cancel(bounded, id); err != nil {
		c.g.debug("interrupt %s: %s", id, err.Error())
	}
}

// drain forgets a Ctrl-C that came too late for what it was meant for.
func drain(interrupts <-chan struct{}) {
	select {
	case <-interrupts:
	default:
	}
}

// lineEnd remembers whether the last line that was written has an end.
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
