package requirements

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"github.com/python-executor/python-executor/core/executor"
)

// MaxLine is the longest line of Lines, in bytes.
const MaxLine = 1 << 20

// Lines is a writer that calls Tell with every line that is not empty. A line longer than MaxLine is split.
type Lines struct {
	Tell func(line string) // nil: nobody is told
	rest []byte
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexAny(l.rest, "\r\n")
		next := end + 1
		switch {
		case end < 0 && len(l.rest) <= MaxLine:
			return len(p), nil
		case end < 0 || end > MaxLine:
			end, next = MaxLine, MaxLine
		}
		l.say(l.rest[:end])
		l.rest = l.rest[next:]
	}
}

// Flush tells the last line if it has no end.
func (l *Lines) Flush() {
	l.say(l.rest)
	l.rest = nil
}

func (l *Lines) say(line []byte) {
	if l.Tell != nil && len(line) > 0 {
		l.Tell(strings.ToValidUTF8(string(line), "\uFFFD"))
	}
}

// Printable returns line without control characters, which could move the cursor of a terminal.
func Printable(line string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, line))
}

// Steps turns the output of uv and pip into Progress.
type Steps struct {
	Notify func(executor.Progress)
	total  int64
}

var (
	resolvedForm = compiled(`^Resolved (\d+) packages? `)
	stepForm     = compiled(`^(Resolved|Downloading|Downloaded|Prepared|Installed|Building|Built|Collecting|Installing collected|Successfully installed)\b`)
)

// Line handles one line of the output.
func (s *Steps) Line(line string) {
	line = Printable(line)
	if m := resolvedForm().FindStringSubmatch(line); m != nil {
		s.total, _ = strconv.ParseInt(m[1], 10, 64) // the pattern allows only digits
	}
	if !stepForm().MatchString(line) {
		return
	}
	e := executor.Progress{Phase: executor.PhasePrepare, Message: Shorten(WithoutCredentials(line), 200)}
	if s.total > 0 {
		e.Total, e.Unit = s.total, "packages"
		if strings.HasPrefix(line, "Installed") {
			e.Done = s.total
		}
	}
	s.Notify(e)
}

// lastRetry is in pip's warning before its last attempt. Nothing says whether an attempt succeeded, so those with attempts left say nothing
// about the index, and only this one says that it is out of reach.
const lastRetry = "Retry(total=0,"

// Clean removes the path of folder, credentials and lines that do not help a user from the output of uv or pip. Of pip's warnings about
// connections the first one before a last attempt stays.
func Clean(said, folder string) string {
	var kept []string
	retried := false
	for line := range strings.SplitSeq(WithoutCredentials(strings.ReplaceAll(said, folder+"/", "")), "\n") {
		line = strings.TrimRight(line, " \t\r")
		if strings.HasPrefix(line, "WARNING: Retrying") {
			if retried || !strings.Contains(line, lastRetry) {
				continue
			}
			retried = true
		}
		if line != "" && !strings.HasPrefix(line, "Using Python ") && !strings.HasPrefix(line, "Resolved ") && !strings.HasPrefix(line, "warning: ") {
			kept = append(kept, line)
		}
	}
	return Shorten(strings.Join(kept, "\n"), 8<<10)
}
