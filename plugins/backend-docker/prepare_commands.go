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

	"github.com/python-executor/python-executor/core/executor"
)

// maxCommands and maxCommandBytes bound pre_commands.
const (
	maxCommands     = 256
	maxCommandBytes = 64 << 10
)

// checkCommands adds to r what no shell could take of pre_commands.
func checkCommands(r *refusal, list []string) {
	total := 0
	for n, c := range list {
		if strings.ContainsRune(c, 0) {
			r.add(executor.Invalid, fmt.Sprintf("pre_commands[%d]", n), "must not contain a NUL character")
		}
		total += len(c)
	}
	if len(list) > maxCommands || total > maxCommandBytes {
		r.add(executor.Invalid, "pre_commands", "must be at most %d commands of %d bytes together (got %d of %d)", maxCommands, maxCommandBytes, len(list), total)
	}
}

// commandLog is what is known of pre_commands while they run.
type commandLog struct {
	commands []string
	// mark begins the line that comes before what a command says. Nobody prints it by chance.
	mark string
	// at is the command that runs; -1: none does yet. said is the end of what it has written.
	at   int
	said tail
	tell func(message string)
}

// line takes a line of the commands' output.
func (l *commandLog) line(line string) {
	var n int
	if _, err := fmt.Sscanf(line, l.mark+" %d", &n); err == nil && n >= 0 && n < len(l.commands) {
		l.at = n
		l.said.reset()
		l.tell("running " + shorten(l.commands[n], 160))
		return
	}
	l.said.add(line)
	if line = printable(line); line != "" {
		l.tell(shorten(line, 200))
	}
}

// failure is what the command that ran last failed with: how it ended, then what it said.
func (l *commandLog) failure(code executor.Code, how string) *executor.Failure {
	what := "the shell"
	if l.at >= 0 {
		what = fmt.Sprintf("pre_commands[%d] %q", l.at, shorten(l.commands[l.at], 200))
	}
	message := what + " " + how
	if said := l.said.String(); said != "" {
		message += ":\n" + said
	}
	return fault(code, "pre_commands", message)
}

// runCommands makes the image of pre_commands: each in a shell of its own, as root with the rights that package managers
// need and no other, on the programs' network.
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
		commands: commands, mark: "python-executor: " + random(), at: -1, said: tail{most: 8 << 10},
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

// shellSignals are the signals that a shell's exit code may stand for.
var shellSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"}

// exitName is a shell's exit code, and the signal that it means for a command that a signal has ended.
func exitName(code int) string {
	if n := slices.IndexFunc(shellSignals, func(name string) bool { return executor.SignalNumber(name) == code-exitSignal }); n >= 0 {
		return fmt.Sprintf("%d (%s)", code, shellSignals[n])
	}
	return fmt.Sprint(code)
}

// commandScript runs each command in a shell of its own that reads nothing, until one fails. It goes to the shell's
// standard input, because the container's settings would be those of the image, too. A line of mark and its number comes
// before what a command says, in the same stream: two would arrive in any order.
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

// quote makes one word of a shell out of text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
