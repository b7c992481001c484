package pyexec

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The printed form of a value is one short line. All of it is in its JSON.

// maxPrinted bounds a text in a printed form, in characters.
const maxPrinted = 80

// String returns the status, how the program ended, and the beginning of what it printed.
func (e Execution) String() string {
	parts := []string{e.ExecutionID, e.Status}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+value)
		}
	}
	if e.ExitCode != nil && *e.ExitCode != 0 {
		add("exit code ", fmt.Sprint(*e.ExitCode))
	}
	add("", e.Signal)
	if e.Failure != nil {
		add("error=", shortened(e.Failure.Message))
	}
	add("stdout=", shortened(e.Stdout))
	add("stderr=", shortened(e.Stderr))
	forms := make([]string, len(e.Displays))
	for i, d := range e.Displays {
		forms[i] = d.MIME
	}
	add("displays=", listed(forms))
	names := make([]string, len(e.Artifacts))
	for i, a := range e.Artifacts {
		names[i] = a.Path
	}
	add("artifacts=", listed(names))
	return "Execution(" + strings.Join(parts, ", ") + ")"
}

// String returns the id, the name and the state.
func (s Session) String() string {
	parts := []string{s.SessionID}
	for _, v := range []string{s.Name, s.Language, s.Status, s.Reason} {
		if v != "" {
			parts = append(parts, v)
		}
	}
	return "Session(" + strings.Join(parts, ", ") + ")"
}

// String returns the case, its verdict, and why it has not passed.
func (c CaseResult) String() string {
	name := c.ID
	if name == "" {
		name = fmt.Sprint(c.Index)
	}
	text := "CaseResult(" + name + ", " + c.Verdict
	if c.Detail != "" {
		text += ", " + shortened(c.Detail)
	}
	return text + ")"
}

// String returns the counts.
func (s BatchSummary) String() string {
	return fmt.Sprintf("BatchSummary(%d of %d passed, %.3g s)", s.Passed, s.Cases, s.DurationSeconds)
}

// shortened returns a text in quotes. The end of a long one is its length.
func shortened(text string) string {
	if text == "" {
		return ""
	}
	shown := 0
	for at := range text {
		if shown == maxPrinted {
			return fmt.Sprintf("%q… (%d characters)", text[:at], utf8.RuneCountInString(text))
		}
		shown++
	}
	return fmt.Sprintf("%q", text)
}

// listed returns a list of at most five names.
func listed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := strings.Join(names[:min(5, len(names))], " ")
	if more := len(names) - 5; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "[" + text + "]"
}
