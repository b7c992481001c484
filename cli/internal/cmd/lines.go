package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/peterh/liner"

	"github.com/python-executor/python-executor/core/executor"
)

// newLineReader returns an editor for a terminal, else a reader of lines. complete returns what may stand in place of a word.
func newLineReader(g *global, language executor.Language, interactive bool, complete func(word string) []string) lineReader {
	if !interactive {
		return &pipeReader{r: bufio.NewReaderSize(g.In, 64<<10)}
	}
	return newEditor(language, complete)
}

// maxLine bounds one line of a pipe.
const maxLine = maxCode

// pipeReader reads lines from a pipe, without prompts.
type pipeReader struct{ r *bufio.Reader }

func (p *pipeReader) line(ctx context.Context, _ string) (string, error) {
	return await(ctx, func() (string, error) {
		var line strings.Builder
		for {
			piece, err := p.r.ReadSlice('\n')
			line.Write(piece)
			if line.Len() > maxLine {
				return "", fmt.Errorf("a line must have at most %d bytes", maxLine)
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return strings.TrimSuffix(strings.TrimSuffix(line.String(), "\n"), "\r"), err
			}
		}
	})
}

// await returns the result of read, or the cause if ctx ends before. read cannot be cancelled, so it may last until the process
// ends.
func await(ctx context.Context, read func() (string, error)) (string, error) {
	var text string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = read()
	}()
	select {
	case <-done:
		return text, err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// pending waits for the next line or for the end.
func (p *pipeReader) pending(ctx context.Context) (bool, error) {
	_, err := await(ctx, func() (string, error) {
		_, err := p.r.Peek(1)
		return "", err
	})
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

func (p *pipeReader) remember(string) {}
func (p *pipeReader) close() error    { return nil }

// editor is a line editor with a history on a terminal. Between two lines it restores the terminal's modes, so that Ctrl-C is
// a signal while code runs.
type editor struct {
	state *liner.State
	// plain and edit are the terminal's modes outside and inside of line; nil if they are unknown.
	plain, edit liner.ModeApplier
	giveBack    func()
	history     string
	// typed is what stands between the terminal and the editor; nil: nothing does.
	typed *typed
}

// indent is the text that Tab inserts at the beginning of a line.
const indent = "    "

func newEditor(language executor.Language, complete func(word string) []string) *editor {
	e := &editor{history: historyFile(language), giveBack: holdTerminal()}
	plain, plainErr := liner.TerminalMode()
	terminal := os.Stdin
	if typed, in, err := newTyped(terminal); err == nil {
		e.typed, os.Stdin = typed, in
		fmt.Fprint(os.Stdout, pasteOn)
	}
	e.state = liner.NewLiner() // it keeps this os.Stdin, and sets the modes of descriptor 0
	os.Stdin = terminal
	withoutSignals()
	if edit, err := liner.TerminalMode(); err == nil && plainErr == nil {
		e.plain, e.edit = plain, edit
		apply(plain)
	}
	e.state.SetCtrlCAborts(true)
	e.state.SetMultiLineMode(true)
	e.state.SetBeep(false)
	e.state.SetTabCompletionStyle(liner.TabPrints)
	e.state.SetWordCompleter(func(line string, at int) (head string, list []string, tail string) {
		head, tail = string([]rune(line)[:at]), string([]rune(line)[at:])
		if strings.TrimSpace(head) == "" {
			return head, []string{indent}, tail
		}
		from := strings.LastIndexFunc(head, func(r rune) bool { return r != '_' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		word := head[from+1:] // what is not in a word has one byte, or the word is none
		if word == "" || !utf8.ValidString(word) {
			return head, nil, tail
		}
		return head[:from+1], complete(word), tail
	})
	if f, err := os.Open(e.history); err == nil {
		_, _ = e.state.ReadHistory(f) // without the file, the history is empty
		f.Close()
	}
	return e
}

func apply(m liner.ModeApplier) {
	if m != nil {
		_ = m.ApplyMode() // the next read reports a terminal that is gone
	}
}

func (e *editor) line(ctx context.Context, prompt string) (string, error) {
	apply(e.edit)
	defer apply(e.plain)
	if e.typed != nil {
		e.typed.want(true)
		defer e.typed.want(false)
	}
	text, err := await(ctx, func() (string, error) { return e.state.Prompt(prompt) })
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", errDropped
	}
	return text, err
}

func (e *editor) pending(context.Context) (bool, error) {
	return e.typed != nil && e.typed.pending(), nil
}

func (e *editor) remember(line string) { e.state.AppendHistory(line) }

func (e *editor) close() error {
	err := e.keep()
	err = errors.Join(err, e.state.Close())
	if e.typed != nil {
		fmt.Fprint(os.Stdout, pasteOff)
	}
	e.giveBack()
	return err
}

// keep saves the history in a file that only its owner can read. If the file cannot be made, the history is lost.
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

// historyFile returns the path of a language's history; "" if there is no folder for it.
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
