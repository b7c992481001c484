package cmd

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/executor"
)

// elsewhere says what to use in place of words that other programs have as commands.
var elsewhere = map[string]string{
	"prune": "old executions, closed sessions and unused caches are removed without a command (retention and sessions in the configuration); kill and session rm end what runs",
	"ps":    "ls lists executions, session ls sessions", "status": "ls lists executions, follow ID shows one", "jobs": "ls lists executions",
	"stop": "kill ID ends an execution, session rm ID a session", "rm": "kill ID ends an execution, session rm ID a session",
	"exec": "run PATH runs a program, session exec ID -- COMMAND a command in a session", "eval": "run -c CODE runs code",
	"start": "serve starts a server, run PATH a program", "shell": "session new, and then session exec -i ID, is a console",
	"python": "run PATH or run -c CODE runs Python", "pip": "run --requirements FILE and session install ID PACKAGE install packages",
	"install": "run --requirements FILE and session install ID PACKAGE install packages", "login": "set PYEXEC_TOKEN or --token",
	"attach": "follow --tail ID shows an execution, session exec -i ID is a console", "cp": "session cp copies files, follow --output DIR ID saves artifacts",
	"batch": "run --each FILE runs a program for many inputs", "test": "run --each FILE judges a program",
}

// synonyms maps other words to those of elsewhere.
var synonyms = map[string]string{
	"clean": "prune", "gc": "prune", "cancel": "stop", "terminate": "stop", "delete": "rm", "remove": "rm", "info": "status", "get": "status",
	"server": "start", "up": "start", "repl": "shell", "console": "shell", "execute": "exec", "tail": "attach", "wait": "attach", "result": "attach",
	"upload": "cp", "download": "cp", "artifacts": "cp", "auth": "login", "judge": "batch", "add": "install",
}

// group is the Args of a command that has only subcommands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return nil
}

// unknownCommand returns the error for a word that is no subcommand of cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	prefix := pathOf(cmd)
	if prefix != "" {
		prefix += " "
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	}
	remedy := ""
	if prefix == "" {
		remedy = elsewhere[word]
		if other := synonyms[word]; remedy == "" {
			remedy = elsewhere[other]
		}
	}
	if near := executor.Nearest(word, names); remedy == "" && near != "" {
		remedy = "did you mean " + prefix + near + "?"
	}
	if near := swapped(word, names); remedy == "" && near != "" {
		remedy = "did you mean " + prefix + near + "?"
	}
	if _, err := os.Stat(word); err == nil && prefix == "" && remedy == "" {
		remedy = "run " + word + " runs it"
	}
	if remedy == "" {
		remedy = "see " + cmd.CommandPath() + " --help"
	}
	return fmt.Errorf("unknown command %q: %s", prefix+word, remedy)
}

// swapped returns the one of names that word is after two neighbouring bytes have changed places, "" if there is none.
func swapped(word string, names []string) string {
	for i := range len(word) - 1 {
		if other := word[:i] + word[i+1:i+2] + word[i:i+1] + word[i+2:]; slices.Contains(names, other) {
			return other
		}
	}
	return ""
}

// flagWords maps flags of other programs to those of this one.
var flagWords = map[string]string{
	"e": "env", "m": "memory", "mem": "memory", "t": "timeout", "o": "output", "out": "output", "r": "requirements", "p": "python", "d": "async", "detach": "async",
	"background": "async", "net": "network", "deps": "requirements", "with": "requirements", "lang": "language", "l": "language", "n": "name", "host": "server",
	"url": "server", "H": "server", "api-key": "token", "entry": "entrypoint", "main": "entrypoint", "input": "file", "f": "file", "cpu-shares": "cpu", "port": "bind", "listen": "bind", "addr": "bind", "address": "bind",
}

// flagError says what was wrong with a flag, and which flag may be meant.
func flagError(cmd *cobra.Command, err error) error {
	words := cmd.Flags().Args() // those before the wrong flag
	if cmd.HasAvailableSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words[0])
	}
	remedy := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := unknown.GetSpecifiedName()
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && takes(cmd, f.Name) {
				names = append(names, f.Name)
			}
		})
		near := executor.Nearest(name, names)
		if name == "host" && cmd.Flags().Lookup("bind") != nil {
			near = "bind"
		}
		if other := flagWords[name]; other != "" && cmd.Flags().Lookup(other) != nil && takes(cmd, other) {
			near = other
		}
		if near != "" {
			remedy = ": did you mean --" + near + "?"
		}
		if _, runs := cmd.Annotations[runsPrograms]; runs && len(words) > 0 {
			remedy += "; the program's own arguments go after --"
		}
	}
	return fmt.Errorf("%w%s (see %s --help)", err, remedy, cmd.CommandPath())
}

// runsPrograms marks commands that run a program with arguments of its own.
const runsPrograms = "runs programs"

// newHelp returns the help command, which refuses what is no command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command", PersistentPreRun: func(*cobra.Command, []string) {},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil {
				return fmt.Errorf("help: %w", err)
			}
			if len(rest) > 0 {
				return unknownCommand(found, rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// programSuffixes are those of files that are taken for programs without the word run.
var programSuffixes = []string{".py", ".pyw", ".pyz", ".js", ".cjs", ".mjs", ".sh", ".bash", ".ipynb", ".tar"}

// withRun puts the word run before a program that stands where a command is expected: script.py, ./folder/, a URL, -c CODE.
func withRun(root *cobra.Command, args []string) []string {
	if len(args) == 0 || !isProgram(args[0]) {
		return args
	}
	if found, _, err := root.Find(args[:1]); err != nil || found != root {
		return args
	}
	return append([]string{"run"}, args...)
}

func isProgram(word string) bool {
	if word == "-c" || strings.Contains(word, "://") {
		return true
	}
	if suffix := strings.ToLower(path.Ext(word)); suffix != "" {
		if slices.Contains(programSuffixes, suffix) {
			return true
		}
	}
	if word == "" || word[0] == '-' {
		return false
	}
	info, err := os.Stat(word) //nolint:gosec // it is only asked whether the word names a file
	return err == nil && (info.Mode().IsRegular() || strings.ContainsRune(word, '/') || word == "." || word == "..")
}
