package engine

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// tailBytes is how much of the end of stderr a hint is made from.
const tailBytes = 4 << 10

// surroundings is what a hint needs to know about an Execution besides its Result.
type surroundings struct {
	// offline: the program has no network. unfed: it has no standard input. session: it runs in a Session. inPlace: it runs in a folder of the
	// host, so files are not sent.
	offline, unfed, session, inPlace bool
}

var (
	moduleMissing  = compiled(`(?m)^(?:ModuleNotFoundError|ImportError): (?:No module named|Missing optional dependency) '([\w.]+)'`)
	nodeMissing    = compiled(`(?m)(?:Cannot find (?:module|package)) '([^'./][^']*)'`)
	pipMissing     = compiled(`No module named pip\b|\bpip3?: (?:command )?not found`)
	fileMissing    = compiled(`(?m)^FileNotFoundError: \[Errno 2\] No such file or directory: '([^/'][^']*)'`)
	notWritable    = compiled(`(?m)^OSError: \[Errno 30\] Read-only file system: '([^']*)'|^PermissionError: \[Errno 13\] Permission denied: '(/[^']*)'`)
	unreachable    = compiled(`Temporary failure in name resolution|Name or service not known|Could not resolve host|[Nn]etwork is unreachable|getaddrinfo E|ENETUNREACH|bad address '|unable to resolve host address|wget: unable to resolve`)
	inputMissing   = compiled(`(?m)^EOFError: EOF when reading a line`)
	tooManyThreads = compiled(`BlockingIOError: \[Errno 11\]|can't start new thread|[Ff]ork: .*[Rr]esource temporarily unavailable|[Cc]annot fork|pthread_create failed|spawn \S+ EAGAIN`)
	argsMissing    = compiled(`(?m)^[^\n]*: error: the following arguments are required: `)
)

func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// signals says what a signal that ended a program usually means.
var signals = map[string]string{
	"SIGSEGV": "it used memory that is not its own, mostly in a native library or by an endless recursion",
	"SIGBUS":  "it used memory that is not there, mostly of a file that became shorter",
	"SIGABRT": "it ended itself, mostly because a native library found an error",
	"SIGILL":  "it used an instruction that this processor does not have, mostly in a library that was built for another one",
	"SIGFPE":  "it divided by zero in native code",
	"SIGSYS":  "it used a system call that the sandbox refuses",
	"SIGXCPU": "it reached its limit of CPU time", "SIGXFSZ": "it wrote a file that is larger than its limit",
	"SIGPIPE": "it wrote to a pipe that nobody reads",
}

// hintOf returns the usual cause of the end of a program and what to do, "" if none is known. tail is the end of its stderr.
func hintOf(r executor.Result, tail string, about surroundings) string {
	if r.Status != executor.StatusFailed || r.Failure != nil {
		return ""
	}
	if why := signals[r.Signal]; why != "" {
		return fmt.Sprintf("%s ended the program: %s", r.Signal, why)
	}
	requirements := "requirements_txt, --requirements or a PEP 723 block"
	if about.session {
		requirements = "session install, or requirements_txt of the session"
	}
	last := func(e *regexp.Regexp) string {
		found := e.FindAllStringSubmatch(tail, -1)
		if found == nil {
			return ""
		}
		return strings.Join(found[len(found)-1][1:], "") // of several groups one has matched
	}
	if pipMissing().MatchString(tail) {
		return fmt.Sprintf("there is no pip in the sandbox: packages come from the requirements (%s)", requirements)
	}
	if module := last(moduleMissing()); module != "" {
		return fmt.Sprintf("module %s is missing: add %s to the requirements (%s), or send its file too", module, executor.PackageOf(module), requirements)
	}
	if module := last(nodeMissing()); module != "" {
		return fmt.Sprintf("package %s of JavaScript is missing, and is not installed: send node_modules with the program (--include-all)", module)
	}
	if unreachable().MatchString(tail) && about.offline {
		return "the program has no network: ask for one (network_disabled false, --network)"
	}
	if inputMissing().MatchString(tail) && about.unfed {
		return "the program reads its standard input, which is empty: give it one (stdin, --stdin FILE, --stdin -)"
	}
	if file := last(fileMissing()); file != "" && !about.inPlace {
		return fmt.Sprintf("%s is not in the work folder: send it with the program (files, a tar, --file; session cp)", clip(file, 100))
	}
	if file := last(notWritable()); file != "" && !about.inPlace {
		return fmt.Sprintf("%s cannot be used: a program writes in its work folder and in /tmp", clip(file, 100))
	}
	if tooManyThreads().MatchString(tail) {
		return "the limit of processes and threads is reached (config.pids): use fewer, or ask for more"
	}
	if argsMissing().MatchString(tail) {
		return "the program wants arguments: give them (args, or after -- on the command line)"
	}
	return ""
}

// tail keeps the end of a stream.
type tail []byte

func (t *tail) add(data []byte) {
	data = data[max(0, len(data)-tailBytes):]
	if keep := tailBytes - len(data); len(*t) > keep {
		*t = append((*t)[:0], (*t)[len(*t)-keep:]...)
	}
	*t = append(*t, data...)
}
