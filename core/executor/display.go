package executor

import "strings"

// displayMark begins the Code of a program that displays. It is a comment, so a backend that does not know it runs a plain program.
const displayMark = "# python-executor: display\n"

// DisplayingProgram returns code of a Python program as Spec.Code of an Execution without a Session that displays what a cell of a Session
// displays: the value of the last expression, figures of matplotlib, and what the program gives to display. await, lines of notebooks and
// the rest of what Python sessions have work, too. The program is a program in all else: its streams, arguments, exit code and files. The
// Displays come when it has ended, also where a limit ended it, within the bounds of every Execution (MaxDisplays, MaxDisplayData).
// Those of an Execution that is cancelled are dropped.
func DisplayingProgram(code string) string { return displayMark + code }

// CutDisplaying returns code without the mark of DisplayingProgram, and reports whether it had one.
func CutDisplaying(code string) (string, bool) { return strings.CutPrefix(code, displayMark) }
