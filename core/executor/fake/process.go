package fake

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// process is the main process of a job.
type process struct {
	run          *run
	stdin        *stdin
	text         string
	argv0        string
	args         []string
	env          map[string]string
	python       string
	requirements []string
	vars         *names
	// separate reports whether the program is a process of its own in a Session, not code in its interpreter.
	separate bool
	// chosen reports whether argv0 was chosen among several .py files.
	chosen bool

	// ignoring reports whether the program ignores SIGTERM. onTerm, if set, is its exit code at SIGTERM. Only the goroutine
	// of the program uses both.
	ignoring bool
	onTerm   *int
	// onInt is the file that the program makes at SIGINT, before it exits with 0.
	onInt string
}

// The ways a directive ends the program.
type (
	exited   int
	signaled string
)

// Error implements error.
func (e exited) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Error implements error.
func (s signaled) Error() string { return string(s) }

// stopped returns a channel that is closed when the program must end: at SIGKILL, and at SIGTERM unless it is ignored.
func (p *process) stopped() <-chan struct{} {
	if p.ignoring {
		return p.run.killed.Done()
	}
	return p.run.term.Done()
}

// death returns the end of a program by the signal that has arrived.
func (p *process) death() error {
	if p.run.killed.Err() != nil {
		return signaled("SIGKILL")
	}
	if p.onTerm != nil {
		return exited(*p.onTerm)
	}
	if p.resident() {
		return signaled("SIGINT")
	}
	if p.run.interrupted() {
		if p.onInt == "" {
			return signaled("SIGINT")
		}
		_ = p.run.tree.put(p.onInt, &file{mode: 0o644, changed: true}, -1) // without a limit it cannot fail
		return exited(0)
	}
	return signaled("SIGTERM")
}

// resident reports whether the program is code in a Session's interpreter.
func (p *process) resident() bool { return p.run.session != nil && !p.separate }

// main interprets the program and returns its end.
func (p *process) main() end {
	err := p.interpret()
	var code exited
	var signal signaled
	switch {
	case err == nil:
		return end{}
	case errors.As(err, &code):
		return end{code: int(code)}
	case errors.As(err, &signal):
		return end{signal: string(signal)}
	default:
		return end{signal: "SIGKILL"}
	}
}

func (p *process) interpret() error {
	if p.chosen {
		if err := p.write(executor.Stderr, []byte(executor.ChosenEntrypoint(p.argv0))); err != nil {
			return err
		}
	}
	number := 0
	for line := range strings.Lines(p.text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		select {
		case <-p.stopped():
			return p.death()
		default:
		}
		name, rest, _ := strings.Cut(strings.TrimLeft(line, " \t"), " ")
		do := directives[name]
		if do == nil {
			return p.crash(number, "SyntaxError", "unknown directive "+strconv.Quote(name))
		}
		if err := do(p, rest); err != nil {
			if mistake, ok := errors.AsType[*usageError](err); ok {
				return p.crash(number, "ValueError", name+": "+mistake.text)
			}
			return err
		}
	}
	return nil
}

// usageError is an invalid argument of a directive. It is an error of the program.
type usageError struct{ text string }

// Error implements error.
func (e *usageError) Error() string { return e.text }

// crash ends the program with an uncaught exception.
func (p *process) crash(line int, class, message string) error {
	text := fmt.Sprintf("Traceback (most recent call last):\n  File %q, line %d, in <module>\n%s: %s\n", p.argv0, line, class, message)
	if err := p.write(executor.Stderr, []byte(text)); err != nil {
		return err
	}
	return exited(1)
}

// wait waits until one of the channels is ready or the program must end. A nil channel is never ready.
func (p *process) wait(until <-chan time.Time, gate <-chan struct{}) error {
	select {
	case <-until:
		return nil
	case <-gate:
		return nil
	case <-p.stopped():
		return p.death()
	}
}

func (p *process) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	return p.wait(t.C, nil)
}

// write writes to a stream. If a signal must end the program, write returns that end.
func (p *process) write(stream executor.Stream, data []byte) error {
	if !p.run.write(p.stopped(), stream, data) {
		return p.death()
	}
	return nil
}

// println writes a line.
func (p *process) println(stream executor.Stream, text string) error {
	return p.write(stream, []byte(text+"\n"))
}

// readAll reads stdin to its end, in pieces.
func (p *process) readAll(each func([]byte) error) error {
	for {
		piece, err := p.stdin.read(p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(piece); err != nil {
			return err
		}
	}
}

// readLine reads up to and including the next line end.
func (p *process) readLine() (string, error) {
	var line []byte
	for {
		piece, err := p.stdin.read(p)
		if errors.Is(err, io.EOF) {
			return string(line), nil
		}
		if err != nil {
			return "", err
		}
		for i, c := range piece {
			if c == '\n' {
				p.stdin.rest = piece[i+1:]
				return string(append(line, piece[:i]...)), nil
			}
		}
		line = append(line, piece...)
	}
}

// text unquotes a Go-quoted argument and returns any other as it is.
func text(s string) string {
	if strings.HasPrefix(s, `"`) {
		if plain, err := strconv.Unquote(s); err == nil {
			return plain
		}
	}
	return s
}

// words splits text at spaces into at most n words. A word may be Go-quoted. The last word is the rest.
func words(s string, n int) []string {
	var list []string
	for s = strings.TrimLeft(s, " "); s != "" && len(list) < n-1; s = strings.TrimLeft(s, " ") {
		if quoted, err := strconv.QuotedPrefix(s); err == nil {
			list, s = append(list, text(quoted)), s[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(s, " ")
		list, s = append(list, word), rest
	}
	if s != "" {
		list = append(list, text(s))
	}
	for len(list) < n {
		list = append(list, "")
	}
	return list
}

// size parses a size such as "20MB".
func size(s string) (int64, error) {
	factor := int64(1)
	for _, unit := range []struct {
		suffix string
		factor int64
	}{{"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}} {
		if plain, ok := strings.CutSuffix(s, unit.suffix); ok {
			s, factor = plain, unit.factor
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<50)/factor {
		return 0, &usageError{"not a size: " + s}
	}
	return n * factor, nil
}

func stream(name string) (executor.Stream, error) {
	switch s := executor.Stream(name); s {
	case executor.Stdout, executor.Stderr:
		return s, nil
	default:
		return "", &usageError{"not a stream: " + name}
	}
}

func decodeHex(s string) ([]byte, error) {
	data, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		return nil, &usageError{"not hexadecimal: " + s}
	}
	return data, nil
}
