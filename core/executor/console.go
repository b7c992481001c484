package executor

// IncompleteType is the MIME type of the only Display of a console's cell that wants another line. Nothing of that cell has run.
const IncompleteType = "application/vnd.python-executor.incomplete+json"

// consoleMark begins a cell that comes from a console, as a comment in its language.
const consoleMark = " python-executor: console\n"

// ConsoleCell returns code as a console sends it to a Session: the lines typed so far, without a final line end. The
// interpreter of the Session runs the code if it is a whole input. Otherwise the Execution succeeds with a Display of
// IncompleteType, and the console asks for another line. An empty last line ends a block of Python.
//
// Python and JavaScript have such cells. Of other languages ConsoleCell returns code as it is.
func ConsoleCell(language Language, code string) string {
	switch language {
	case LanguageDefault, LanguagePython:
		return "#" + consoleMark + code
	case LanguageJavaScript:
		return "//" + consoleMark + code
	}
	return code
}
