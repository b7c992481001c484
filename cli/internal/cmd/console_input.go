package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// readLine is what a lineReader returned.
type readLine struct {
	text string
	err  error
}

// next returns the next line, which may have been read already.
func (c *console) next(ctx context.Context, prompt string) (string, error) {
	if len(c.ahead) > 0 {
		first := c.ahead[0]
		c.ahead = c.ahead[1:]
		return first.text, first.err
	}
	return c.lines.line(ctx, prompt)
}

func blank(line string) bool { return strings.TrimSpace(line) == "" }

// continues reports whether a line of Python belongs to the block before it, by its first character or its first word.
func continues(line string) bool {
	if strings.ContainsAny(line[:1], " \t)]}") {
		return true
	}
	word := line
	if end := strings.IndexAny(line, " :(*#\t"); end >= 0 {
		word = line[:end]
	}
	return word == "else" || word == "elif" || word == "except" || word == "finally"
}

// within reports whether an empty line is one within a block, because what was pasted with it goes on with the block. What a person types
// ends there, as in Python's console.
func (c *console) within(ctx context.Context, line, prompt string) (bool, error) {
	if !blank(line) {
		return false, nil
	}
	for i := 0; ; i++ {
		if i == len(c.ahead) {
			if more, err := c.lines.pending(ctx); err != nil || !more {
				return false, err
			}
			text, err := c.lines.line(ctx, prompt)
			c.ahead = append(c.ahead, readLine{text, err})
		}
		switch next := c.ahead[i]; {
		case next.err != nil && !errors.Is(next.err, io.EOF):
			return false, nil // the next round handles it
		case !blank(next.text):
			return continues(next.text), nil
		case next.err != nil:
			return false, nil
		}
	}
}

// before runs the block of lines if the next line does not belong to it. Python's console wants an empty line there, which files that are
// pasted do not have. It returns the lines that line is to be added to.
func (c *console) before(ctx context.Context, lines []string, line string) ([]string, error) {
	if blank(line) || continues(line) {
		return lines, nil
	}
	more, err := c.run(ctx, strings.Join(lines, "\n")+"\n", true)
	if more || err != nil {
		return lines, err
	}
	return nil, nil
}

// leaving returns what leaves a console of a language, for the greeting.
func leaving(language executor.Language) string {
	switch language {
	case executor.LanguageShell:
		return "exit"
	case executor.LanguageJavaScript:
		return ".exit"
	default:
		return "exit()"
	}
}

// leave reports whether a line leaves the console, and with which exit status. The session stays.
func leave(language executor.Language, line string) (status int, leaves bool) {
	line = strings.TrimSuffix(strings.TrimSpace(line), ";")
	if language == executor.LanguageShell {
		word, code, _ := strings.Cut(line, " ")
		if word != "exit" && word != "logout" {
			return 0, false
		}
		return statusOf(code)
	}
	switch line {
	case "exit", "quit", ".exit":
		return 0, true
	}
	word, rest, called := strings.Cut(line, "(")
	code, closed := strings.CutSuffix(rest, ")")
	if !called || !closed || word != "exit" && word != "quit" {
		return 0, false
	}
	return statusOf(code)
}

func statusOf(code string) (status int, ok bool) {
	if code = strings.TrimSpace(code); code == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(code, 10, 8)
	return int(n), err == nil
}

// answerName begins the names of the files that answers are written into.
const answerName = ".pyexec-answer-"

// answer asks the person what input() of the execution id wants to know. Ctrl-C interrupts the execution, Ctrl-D is the end of the input.
func (c *console) answer(ctx context.Context, id string, question []byte) error {
	var ask executor.Ask
	if json.Unmarshal(question, &ask) != nil || !strings.HasPrefix(ask.File, answerName) || strings.ContainsAny(ask.File, "/\x00") {
		return nil // no question of ours
	}
	prompt := ask.Prompt
	if c.interrupts == nil {
		if _, err := io.WriteString(c.g.Out, prompt); err != nil {
			return outputError{err}
		}
	} else if i := strings.LastIndexByte(prompt, '\n'); i >= 0 { // the editor takes one line
		fmt.Fprint(c.g.Out, prompt[:i+1])
		prompt = prompt[i+1:]
	}
	line, err := c.next(ctx, strings.ReplaceAll(clean(prompt), "\t", " "))
	switch {
	case errors.Is(err, errDropped):
		_, err = c.svc.Cancel(ctx, id)
		return err
	case errors.Is(err, io.EOF) && line == "":
	case err != nil && !errors.Is(err, io.EOF):
		return err
	default:
		line += "\n"
	}
	_, err = c.svc.WriteFile(ctx, c.id, executor.File{Path: ask.File, SizeBytes: int64(len(line))}, strings.NewReader(line))
	return err
}

// completionTime bounds the wait for what Tab may complete.
const completionTime = 5 * time.Second

var errCompletion = errors.New("the completion took too long")

// complete returns what may stand in place of word; nothing if the session does not say.
func (c *console) complete(ctx context.Context, word string) []string {
	ctx, cancel := context.WithTimeoutCause(ctx, completionTime, errCompletion)
	defer cancel()
	var found []string
	if c.language != executor.LanguagePython {
		list, err := c.svc.Variables(ctx, c.id)
		if err != nil {
			return nil
		}
		for _, v := range list {
			if strings.HasPrefix(v.Name, word) {
				found = append(found, v.Name)
			}
		}
		return found
	}
	spec := c.base
	spec.Code, spec.Limits.Timeout = executor.CompletionCell(word), completionTime
	e, err := c.svc.Submit(ctx, spec, executor.Input{})
	if err != nil {
		return nil
	}
	for event, err := range c.svc.Events(ctx, e.ID, 0) {
		if err != nil {
			return nil
		}
		if d, ok := event.Body.(executor.Display); ok && json.Unmarshal(d.Data[executor.CompletionType], &found) != nil {
			return nil
		}
	}
	return found
}
