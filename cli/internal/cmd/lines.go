package cmd

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/peterh/liner"

	"github.com/python-executor/python-executor/core/executor"
)

// newLineReader returns an editor on a terminal, else what reads lines.
func newLineReader(g *global, language executor.Language, interactive bool) lineReader {
	if !interactive {
		return &pipeReader{r: bufio.NewReaderSize(g.In, 64<<10)}
	}
	return newEditor(language)
}

// maxLine bounds one line of a pipe.
const maxLine = maxCode

// pipeReader reads the lines of a pipe; there is nobody to prompt.
type pipeReader struct{ r *bufio.Reader }

func (p *pipeReader) line(ctx context.Context, _ string) (string, error) {
	type read struct {
		text string
		err  error
	}
	got := make(chan read, 1)
	go func() { // a Read cannot be called off; the process ends with it
		var line strings.Builder
		for {
			piece, err := p.r.ReadSlice('\n')
			line.Write(piece)
			if line.Len() > maxLine {
				got <- read{"", errors.New("a line is too long")}
				return
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				got <- read{strings.TrimSuffix(strings.TrimSuffix(line.String(), "\n"), "\r"), err}
				return
			}
		}
	}()
	select {
	case r := <-got:
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *pipeReader) remember(string) {}
func (p *pipeReader) close() error    { return nil }

// editor is a line editor with a history on a terminal. Between two lines the terminal is as it was, so that Ctrl-C is a
// signal while code runs.
type editor struct {
	state *liner.State
	// plain and edit are the terminal's modes outside and inside of line. nil: there is none to be had.
	plain, edit liner.ModeApplier
	giveBack    func()
	history     string
}

// indent is what Tab gives at the beginning of a line.
const indent = "    "

func newEditor(language executor.Language) *editor {
	e := &editor{history: historyFile(language), giveBack: holdTerminal()}
	plain, plainErr := liner.TerminalMode()
	e.state = liner.NewLiner()
	withoutSignals()
	if edit, err := liner.TerminalMode(); err == nil && plainErr == nil {
		e.plain, e.edit = plain, edit
		apply(plain)
	}
	e.state.SetCtrlCAborts(true)
	e.state.SetMultiLineMode(true)
	e.state.SetBeep(false)
	e.state.SetCompleter(func(line string) []string {
		if strings.TrimSpace(line) == "" {
			return []string{line + indent}
		}
		return nil
	})
	if f, err := os.Open(e.history); err == nil {
		_, _ = e.state.ReadHistory(f) // without it the history begins today
		f.Close()
	}
	return e
}

func apply(m liner.ModeApplier) {
	if m != nil {
		_ = m.ApplyMode() // a terminal that went away is met by the next read
	}
}

func (e *editor) line(ctx context.Context, prompt string) (string, error) {
	apply(e.edit)
	defer apply(e.plain)
	type read struct {
		text string
		err  error
	}
	got := make(chan read, 1)
	go func() { // it cannot be called off; the process ends with it
		text, err := e.state.Prompt(prompt)
		got <- read{text, err}
	}()
	select {
	case r := <-got:
		if errors.Is(r.err, liner.ErrPromptAborted) {
			return "", errDropped
		}
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (e *editor) remember(line string) { e.state.AppendHistory(line) }

func (e *editor) close() error {
	err := e.keep()
	err = errors.Join(err, e.state.Close())
	e.giveBack()
	return err
}

// keep writes the history, which is its owner's only. Where there is no place for it, it is forgotten.
func (e *editor) keep() error {
	if e.history == "" || os.MkdirAll(filepath.Dir(e.history), 0o700) != nil {
		return nil
	}
	f, err := os.OpenFile(e.history, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	}
	_, err = e.state.WriteHistory(f)
	return errors.Join(err, f.Close())
}

// historyFile is where a language's lines are kept; "" if there is no place.
func historyFile(language executor.Language) string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		dir = ""
	}
	if dir == "" && runtime.GOOS == "windows" {
		dir, _ = os.UserCacheDir() // "" if unknown
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "python-executor", "history-"+string(language))
}
