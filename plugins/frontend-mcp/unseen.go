package mcpfrontend

import (
	"regexp"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// pipInstall is a call of pip as a text or as a list of words.
const pipInstall = `\bpip[\d.]*["']?(?:[\s,]+["']?-[^\s"',]*["']?)*[\s,]+["']?install\b`

// The ways in which Python code calls pip as another program: in the arguments of a function, in a command that a variable holds, and as a
// line that begins with !. The group is the indentation. startsProgram is what such code has besides.
var (
	pythonCall = compiled(`(?m)^([ \t]*)(?:[^#\n]*[^\w#\n])?(?:system|popen|run|call|check_call|check_output|Popen|getoutput|getstatusoutput|split|create_subprocess_\w+)` +
		`\((?:[^()#]*["'\s/])?` + pipInstall)
	pythonValue   = compiled(`(?m)^([ \t]*)\w+[ \t]*=[ \t]*(?:\[[^\]#]*["']|[fr]?["'](?:\S*\s+-m\s+)?)` + pipInstall)
	pythonLine    = compiled(`(?m)^([ \t]*)(?:\w+[ \t]*=[ \t]*)?[!%](?:[^\n#"']*[\s/])?` + pipInstall)
	startsProgram = compiled(`\bsubprocess\b|\bos\.(?:system|popen)\b|(?m:^[ \t]*(?:\w+[ \t]*=[ \t]*)?[!%])`)
)

// shellCall is a command of a shell that calls pip. What follows then, else or || may not run.
var shellCall = compiled(`(?m)(?:^|[;&|(` + "`" + `]|\b(?:do|sudo|time|exec|nohup|env)[ \t]|-c["',\s]+)[ \t]*(?:\w+=\S*[ \t]+)*(?:uv[ \t]+|\S*python[\d.]*[ \t]+(?:-\S+[ \t]+)*-m[ \t]+|[^\s"']*/)?` +
	`pip[\d.]*(?:[ \t]+-\S+)*[ \t]+install\b`)

var (
	optional     = compiled(`^(?:if|elif|else|except|while)\b`)
	importGuard  = compiled(`\bImportError\b|\bModuleNotFoundError\b|\bfind_spec\b`)
	checked      = compiled(`\bcheck_(?:call|output|returncode)\b|\bcheck\s*=\s*True\b`)
	errorExit    = compiled(`(?m)(?:^|[;&][ \t]*)set[ \t]+-\w*[eo]`)
	redirections = compiled(`^(?:\s*\d*(?:&?>>?|<<?<?)[ \t]*&?[^\s;|&)]+)*[ \t)]*`)
	worked       = compiled(`Successfully installed|Requirement already satisfied`)
)

// unseen reports whether pip has failed in a program that went on, and that did not show this on stderr. output is what the program showed
// elsewhere. Without a word of pip, pip must be called for certain, and must need a network that there is not.
func (a advice) unseen(code, output, stderr string, r executor.Result) bool {
	words, calls := installWords(code)
	if !calls || r.Status != executor.StatusSucceeded || worked().MatchString(output+stderr) {
		return false
	}
	hides, leaves := hidesInPython(code), false
	if a.shell {
		inShell, left := hidesInShell(code)
		hides, leaves = hides || inShell, left
	}
	return noPip().MatchString(output) || leaves || a.networkOff && hides && !local(words)
}

// hidesInPython reports whether Python code is certain to call pip, and goes on if pip fails.
func hidesInPython(code string) bool {
	if !startsProgram().MatchString(code) || importGuard().MatchString(code) {
		return false
	}
	for _, call := range []*regexp.Regexp{pythonCall(), pythonValue(), pythonLine()} {
		if at := call.FindStringSubmatchIndex(code); at != nil {
			around := blocks(code[:at[2]], at[3]-at[2])
			return !slices.ContainsFunc(around, optional().MatchString) && (!checked().MatchString(code) || slices.Contains(around, "try:"))
		}
	}
	return false
}

// blocks returns the first lines of the blocks that a line is in. before is the code before the line, indent the line's indentation.
func blocks(before string, indent int) []string {
	var list []string
	for _, line := range slices.Backward(strings.Split(before, "\n")) {
		text := strings.TrimSpace(line)
		if n := strings.Index(line, text); text != "" && n < indent {
			list, indent = append(list, text), n
		}
	}
	return list
}

// hidesInShell reports whether a shell's code is certain to call pip, and goes on if pip fails. It leaves pip alone if it ends without
// waiting for pip, which then ends, too.
func hidesInShell(code string) (hides, leaves bool) {
	at := shellCall().FindStringIndex(code)
	if at == nil || strings.HasSuffix(code[:at[0]], "|") || errorExit().MatchString(code[:at[0]]) {
		return false, false
	}
	_, rest := shellWords(enclosed(code, at[1]))
	rest = strings.TrimRight(rest[len(redirections().FindString(rest)):], "; \t\n")
	return rest != "" && !strings.HasPrefix(rest, "&&") && rest[0] != '#', rest == "&"
}

// local reports whether the words behind pip install name files or folders, which pip may install without a network.
func local(words []string) bool {
	for i, word := range words {
		switch {
		case slices.Contains([]string{"--no-index", "-f", "--find-links", "-e", "--editable"}, word):
			return true
		case i > 0 && slices.Contains(valued, words[i-1]), i > 0 && words[i-1] == "-r":
		case strings.HasPrefix(word, "."), strings.HasPrefix(word, "/"), packageFile().MatchString(word):
			return true
		}
	}
	return false
}
