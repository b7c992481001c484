package mcpfrontend

import (
	"slices"
	"strings"
)

// The ways in which code calls a program that installs packages: as a line of a shell, also in a text; as a list of words; as a function of
// pip. The groups of installList have the words behind "install".
var (
	installLine = compiled(`(?m)(?:^|[\s;&|("'!%/` + "`" + `])(?:(?:uv[ \t]+)?pip[\d.]*(?:[ \t]+-\S+)*[ \t]+install|uv[ \t]+add|poetry[ \t]+add|(?:conda|mamba)[ \t]+install)\b`)
	installList = compiled(`["']pip[\d.]*["']\s*,\s*(?:["']-[^"']*["']\s*,\s*)*["']install["']((?:[^\])"']|"[^"]*"|'[^']*')*)|\bmain\(\s*\[\s*["']install["']((?:[^\])"']|"[^"]*"|'[^']*')*)`)
	npmLine     = compiled(`(?m)(?:^|[\s;&|("'!` + "`" + `])(?:npm|yarn|pnpm)["']?[\s,\["']+(?:install|i|add|ci)\b`)
	systemLine  = compiled(`(?m)(?:^|[\s;&|("'!` + "`" + `])(?:apt|apt-get|apk|yum|dnf)(?:[ \t]+-\S+)*[ \t]+(?:install|add)\b`)
	quotedWord  = compiled(`["']([^"']+)["']`)
	requirement = compiled(`^[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?: *[<>=!~;].*)?$`)
	packageFile = compiled(`\.(?:whl|zip|tar\.\w+)$`)
)

// notebookLine is a line that installs packages as a notebook does. Python refuses it.
var notebookLine = compiled(`(?m)^[ \t]*(?:\w+[ \t]*=[ \t]*)?[!%]?[ \t]*(?:uv[ \t]+)?(?:python3?[ \t]+-m[ \t]+)?pip3?[ \t]+install\b`)

// What a failed installation says.
var (
	noPip = compiled(`No module named '?pip\b|\b(?:pip[\d.]*|uv|poetry|conda|mamba): (?:command )?not found|No such file or directory: '(?:pip[\d.]*|uv)'|` +
		`externally-managed-environment|No matching distribution found|Could not install packages due to|pip cannot install here|See PEP 668`)
	noNPM    = compiled(`\b(?:npm|yarn|pnpm): (?:command )?not found|spawn(?:Sync)? (?:npm|yarn|pnpm) ENOENT|npm (?:ERR!|error)|No such file or directory: '(?:npm|yarn|pnpm)'`)
	noSystem = compiled(`\b(?:apt|apt-get|apk|yum|dnf): (?:command )?not found|Could not open lock file|Permission denied|are you root\?|Temporary failure resolving|Unable to locate package`)
)

// valued are options of pip and uv whose value is the next word.
var valued = strings.Fields("-i -t -c -f -p -e -n --index-url --extra-index-url --target --constraint --find-links --python --editable " +
	"--timeout --default-timeout --retries --proxy --trusted-host --root --prefix --src --platform --python-version --abi --implementation " +
	"--cache-dir --progress-bar --log --log-file --cert --client-cert --exists-action --use-feature --use-deprecated --config-settings -C " +
	"--config-setting --global-option --install-option --build-option --no-binary --only-binary --upgrade-strategy --keyring-provider " +
	"--report --root-user-action --build-constraint --group --resume-retries --uploaded-prior-to --index --default-index " +
	"--index-strategy --exclude-newer --prerelease --resolution --link-mode --override --python-platform --channel --name")

// installs returns the packages that code installs by pip, and reports whether it calls pip. Without packages they are in a file, or in a variable.
func installs(code string) (packages []string, calls bool) {
	words, calls := installWords(code)
	return named(words), calls
}

// installWords returns the words behind pip install in code, and reports whether it has such a call.
func installWords(code string) (words []string, calls bool) {
	if found := installList().FindStringSubmatch(code); found != nil {
		for _, word := range quotedWord().FindAllStringSubmatch(found[1]+found[2], -1) {
			words = append(words, word[1])
		}
		return words, true
	}
	at := installLine().FindStringIndex(code)
	if at == nil {
		return nil, false
	}
	words, _ = shellWords(enclosed(code, at[1]))
	return words, true
}

// enclosed returns the code from at on, up to the end of the text in quotes that begins before at in the same line.
func enclosed(code string, at int) string {
	before, rest := code[strings.LastIndexByte(code[:at], '\n')+1:at], code[at:]
	for _, quote := range []string{`"`, `'`, "`"} {
		if strings.Count(before, quote)%2 == 1 {
			rest, _, _ = strings.Cut(rest, quote)
		}
	}
	return rest
}

// shellWords returns the words of a shell's command up to its end or its first redirection, and what comes behind them. A comparison that
// lacks its quotes, as in numpy>=2, is part of its word, because that is what its author means.
func shellWords(line string) (words []string, rest string) {
	var word strings.Builder
	quote, in := byte(0), false // in: within a word
	end := func() {
		if in {
			words = append(words, word.String())
		}
		word.Reset()
		in = false
	}
	for i := 0; i < len(line); i++ {
		c, next := line[i], line[min(i+1, len(line)-1)]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == '\\' && next == '\n':
			i++
		case c == ' ' || c == '\t':
			end()
		case (c == '<' || c == '>') && number(word.String()): // 2>/dev/null
			return words, line[i:]
		case (c == '<' || c == '>') && in && (next == '=' || number(string(next))):
			word.WriteByte(c)
		case strings.IndexByte("\n;|&)<>", c) >= 0 || c == '#' && !in:
			end()
			return words, line[i:]
		default:
			word.WriteByte(c)
			in = true
		}
	}
	end()
	return words, ""
}

// number reports whether text is a number.
func number(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// named returns the requirements among the words behind pip install.
func named(words []string) []string {
	var list []string
	for i, word := range words {
		switch {
		case strings.HasPrefix(word, "-r") || strings.HasPrefix(word, "--requirement"):
			return nil
		case i > 0 && slices.Contains(valued, words[i-1]), !requirement().MatchString(word), packageFile().MatchString(word):
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
