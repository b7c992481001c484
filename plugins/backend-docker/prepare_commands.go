package dockerbackend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// maxCommands and maxCommandBytes bound the number of pre_commands and their total length.
const (
	maxCommands     = 256
	maxCommandBytes = 64 << 10
)

// checkCommands adds to p the problems of pre_commands that a shell could not run.
func checkCommands(p *backend.Problems, list []string) {
	total := 0
	for n, c := range list {
		if strings.ContainsRune(c, 0) {
			p.Add(fmt.Sprintf("pre_commands[%d]", n), "must not contain a NUL character")
		}
		total += len(c)
	}
	if len(list) > maxCommands || total > maxCommandBytes {
		p.Add("pre_commands", "must be at most %d commands of %d bytes together (got %d of %d)", maxCommands, maxCommandBytes, len(list), total)
	}
}

// commandLog follows the output of pre_commands.
type commandLog struct {
	commands []string
	// mark begins the line before the output of each command. It holds a random part, so that no command prints it by chance.
	mark string
	// at is the index of the running command; -1 before the first. said is the end of its output.
	at   int
	said tail
	tell func(message string)
}

// line handles a line of the commands' output.
func (l *commandLog) line(line string) {
	var n int
	if _, err := fmt.Sscanf(line, l.mark+" %d", &n); err == nil && n >= 0 && n < len(l.commands) {
		l.at = n
		l.said.reset()
		l.tell("running " + requirements.Shorten(l.commands[n], 160))
		return
	}
	l.said.add(line)
	if line = requirements.Printable(line); line != "" {
		l.tell(requirements.Shorten(line, 200))
	}
}

// failure returns the Failure of the last command that ran: how it ended, and the end of its output.
func (l *commandLog) failure(code executor.Code, how string) *executor.Failure {
	what := "the shell"
	if l.at >= 0 {
		what = fmt.Sprintf("pre_commands[%d] %q", l.at, requirements.Shorten(l.commands[l.at], 200))
	}
	message := what + " " + how
	if said := l.said.String(); said != "" {
		message += ":\n" + said
	}
	return fault(code, "pre_commands", message)
}

// runCommands makes the image of pre_commands. Each command runs in its own shell, as root with only the capabilities that
// package managers need. It uses the network of preparations if one is configured, else that of programs.
func (i *images) runCommands(ctx context.Context, key string, base imageInfo, settings prepareSettings, commands []string, progress func(executor.Progress)) (prepared, error) {
	network, err := i.network(ctx)
	if err != nil {
		return prepared{}, err
	}
	s := preparationSpec(i.place, i.settings, base, stage{command: []string{"/bin/sh", "-s"}, user: "0:0", network: cmp.Or(i.settings.network, network), capabilities: commandCapabilities}, newName(kindPrepare), time.Now())
	var bundle, apt string
	if i.settings.bundle != "" {
		bundle, apt = toolsFolder+"/ca.pem", toolsFolder+"/apt.conf"
	}
	log := &commandLog{
		commands: commands, mark: "python-executor: " + random(), at: -1, said: tail{max: 8 << 10},
		tell: func(message string) { progress(executor.Progress{Phase: executor.PhasePrepare, Message: message}) },
	}
	run := stageRun{
		stdin:  commandScript(commands, settings.forCommands(bundle, apt), log.mark),
		stderr: log.line,
		before: func(ctx context.Context, id string) error {
			return i.bring(ctx, id, bringSpec{bundle: bundle, apt: apt})
		},
	}
	labels := map[string]string{labelPrepared: key}
	var facts imageFacts
	run.after = func(ctx context.Context, id string) (err error) {
		facts, err = i.commit(ctx, id, key, labels)
		return err
	}
	end, err := i.runStage(ctx, s, run)
	switch {
	case executor.CodeOf(err) == executor.Invalid:
		return prepared{failure: fault(executor.Invalid, "pre_commands", "the image has no /bin/sh to run commands: "+err.Error())}, nil
	case errors.Is(err, errPrepareTime):
		return prepared{failure: log.failure(executor.Exhausted, "was still running: "+i.lateFailure("").Message)}, nil
	case err != nil:
		return prepared{}, err
	}
	if failure := i.limitFailure(end, "pre_commands"); failure != nil {
		return prepared{failure: log.failure(failure.Code, failure.Message)}, nil
	}
	if end.exit != 0 {
		return prepared{failure: log.failure(executor.Invalid, "ended with exit code "+exitName(end.exit))}, nil
	}
	info, err := i.preparedInfo(facts, base)
	return prepared{info: info}, err
}

// shellSignals are the signals that an exit code of a shell may stand for.
var shellSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"}

// exitName returns an exit code of a shell as text, with the signal that ended the command, if any.
func exitName(code int) string {
	if n := slices.IndexFunc(shellSignals, func(name string) bool { return executor.SignalNumber(name) == code-exitSignal }); n >= 0 {
		return fmt.Sprintf("%d (%s)", code, shellSignals[n])
	}
	return fmt.Sprint(code)
}

// commandScript returns a script that runs each command in its own shell without input, until one fails. The shell reads the
// script from its standard input: settings of the container would become settings of the image. A line of mark and the
// command's index precedes the output of each command. Both go to standard error, because two streams could arrive in any
// order.
func commandScript(commands []string, env map[string]string, mark string) []byte {
	var b bytes.Buffer
	b.WriteString("exec 1>&2\n")
	for name, value := range env {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
	}
	for n, c := range commands {
		fmt.Fprintf(&b, "echo; echo '%s %d'\n/bin/sh -c %s </dev/null || exit\n", mark, n, quote(c))
	}
	fmt.Fprintf(&b, "rm -rf %s\nexit 0\n", toolsFolder)
	return b.Bytes()
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
