package mcpfrontend

import (
	"slices"
	"strings"
)

// The ways in which code calls a program that installs packages: as a line of a shell, also in a text; as a list of words; as a function of
// pip. The last group has the words behind "install".
var (
	installLine = compiled(`(?m)(?:^|[\s;&|("'!%/` + "`" + `])(?:(?:uv[ \t]+)?pip[\d.]*(?:[ \t]+-\S+)*[ \t]+install|uv[ \t]+add|poetry[ \t]+add|(?:conda|mamba)[ \t]+install)\b([^\n;|&]*)`)
	installList = compiled(`["']pip[\d.]*["']\s*,\s*(?:["']-[^"']*["']\s*,\s*)*["']install["']((?:[^\])"']|"[^"]*"|'[^']*')*)|\bmain\(\s*\[\s*["']install["']((?:[^\])"']|"[^"]*"|'[^']*')*)`)
	npmLine     = compiled(`(?m)(?:^|[\s;&|("'!` + "`" + `])(?:npm|yarn|pnpm)["']?[\s,\["']+(?:install|i|add|ci)\b`)
	systemLine  = compiled(`(?m)(?:^|[\s;&|("'!` + "`" + `])(?:apt|apt-get|apk|yum|dnf)(?:[ \t]+-\S+)*[ \t]+(?:install|add)\b`)
	quotedWord  = compiled(`["']([^"']+)["']`)
	requirement = compiled(`^[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?:[<>=!~]=?.*)?$`)
)

// notebookLine is a line that installs packages as a notebook does. Python refuses it.
var notebookLine = compiled(`(?m)^[ \t]*(?:\w+[ \t]*=[ \t]*)?[!%]?[ \t]*(?:uv[ \t]+)?(?:python3?[ \t]+-m[ \t]+)?pip3?[ \t]+install\b`)

// What a failed installation says.
var (
	noPip = compiled(`No module named '?pip\b|\b(?:pip[\d.]*|uv|poetry|conda|mamba): (?:command )?not found|No such file or directory: '(?:pip[\d.]*|uv)'|` +
		`externally-managed-environment|No matching distribution found|Could not install packages due to|pip cannot install here`)
	noNPM    = compiled(`\b(?:npm|yarn|pnpm): (?:command )?not found|spawn(?:Sync)? (?:npm|yarn|pnpm) ENOENT|npm (?:ERR!|error)|No such file or directory: '(?:npm|yarn|pnpm)'`)
	noSystem = compiled(`\b(?:apt|apt-get|apk|yum|dnf): (?:command )?not found|Could not open lock file|Permission denied|are you root\?|Temporary failure resolving|Unable to locate package`)
)

// valued are options of pip whose value is the next word.
var valued = []string{"-i", "-t", "-c", "-f", "--index-url", "--extra-index-url", "--target", "--constraint", "--find-links", "--python", "-p"}

// installs returns the packages that code installs by pip, and reports whether it calls pip. Without packages they are in a file, or in a variable.
func installs(code string) (packages []string, calls bool) {
	if found := installList().FindStringSubmatch(code); found != nil {
		for _, word := range quotedWord().FindAllStringSubmatch(found[1]+found[2], -1) {
			packages = append(packages, word[1])
		}
		return named(packages), true
	}
	at := installLine().FindStringSubmatchIndex(code)
	if at == nil {
		return nil, false
	}
	rest := code[at[2]:at[3]]
	before := code[strings.LastIndexByte(code[:at[2]], '\n')+1 : at[2]]
	for _, quote := range []string{`"`, `'`, "`"} { // of a text that the line is in
		if strings.Count(before, quote)%2 == 1 {
			rest, _, _ = strings.Cut(rest, quote)
		}
	}
	for word := range strings.FieldsSeq(rest) {
		packages = append(packages, strings.Trim(word, `"'`))
	}
	return named(packages), true
}

// named returns the requirements among the words behind pip install.
func named(words []string) []string {
	var list []string
	for i, word := range words {
		switch {
		case strings.HasPrefix(word, "-r") || word == "--requirement":
			return nil
		case i > 0 && slices.Contains(valued, words[i-1]), !requirement().MatchString(word):
		default:
			list = append(list, word)
		}
	}
	return list
}

// commandText returns an argv as installs reads it.
func commandText(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		quote := `"`
		if strings.Contains(word, quote) {
			quote = `'`
		}
		words[i] = quote + word + quote
	}
	return strings.Join(words, ", ")
}
