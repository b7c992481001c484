package executor

// IncompleteType is the MIME type of the only Display of a console's cell that wants another line. Nothing of that cell has run.
const IncompleteType = "application/vnd.python-executor.incomplete+json"

// AskType is the MIME type of a Display with which input() asks the person at a console: an object with the prompt and the name of the file
// in the work folder that the console writes the answer into, a line of UTF-8 text. A file without a line end means that there is none.
const AskType = "application/vnd.python-executor.ask+json"

// CompletionType is the MIME type of the Display that answers a CompletionCell: a list of texts.
const CompletionType = "application/vnd.python-executor.completions+json"

// Ask is the content of a Display of AskType.
type Ask struct {
	Prompt string `json:"prompt"`
	File   string `json:"file"`
}

// consoleMark begins a cell that comes from a console, as a comment in its language.
const consoleMark = " python-executor: console\n"

// ConsoleCell returns code as a console sends it to a Session: the lines typed so far, without a final line end. The
// interpreter of the Session runs the code if it is a whole input. Otherwise the Execution succeeds with a Display of
// IncompleteType, and the console asks for another line. An empty last line ends a block of Python.
//
// In Python, input() of such a cell asks by a Display of AskType. A cell that begins with "# python-executor: console" and a line end is
// the same for a console that cannot answer: its input() finds no input.
//
// Python and JavaScript have such cells. Of other languages ConsoleCell returns code as it is.
func ConsoleCell(language Language, code string) string {
	switch language {
	case LanguageDefault, LanguagePython:
		return "# python-executor: console, asks\n" + code
	case LanguageJavaScript:
		return "//" + consoleMark + code
	}
	return code
}

// CompletionCell returns code that asks a Session of Python for what may stand in place of the expression text, such as "os.pa". It displays
// CompletionType, and runs nothing but what the attributes of objects do.
func CompletionCell(text string) string { return "# python-executor: complete\n" + text }
