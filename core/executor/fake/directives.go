package fake

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// directive runs one line of a program. Its error ends the program.
type directive func(p *process, rest string) error

// directives are documented in doc.go, in the same order.
var directives = map[string]directive{
	"print":     func(p *process, rest string) error { return p.println(executor.Stdout, text(rest)) },
	"print-err": func(p *process, rest string) error { return p.println(executor.Stderr, text(rest)) },
	"write":     func(p *process, rest string) error { return p.write(executor.Stdout, []byte(text(rest))) },
	"write-err": func(p *process, rest string) error { return p.write(executor.Stderr, []byte(text(rest))) },
	"hex":       writeHex,
	"flood":     flood,
	"exit":      exit,
	"raise":     func(p *process, rest string) error { return p.crash(1, "RuntimeError", text(rest)) },
	"signal":    func(_ *process, rest string) error { return signaled("SIG" + strings.TrimPrefix(rest, "SIG")) },
	"sleep":     sleep,
	"hang":      func(p *process, _ string) error { return p.wait(nil, nil) },
	"busy":      busy,

	"read-stdin": func(p *process, _ string) error {
		return p.readAll(func(b []byte) error { return p.write(executor.Stdout, b) })
	},
	"count-stdin": countStdin,
	"read-line":   readLine,
	"close-stdin": func(p *process, _ string) error { p.stdin.close(); return nil },

	"cat":        cat,
	"exists":     exists,
	"executable": executable,
	"ls":         list,
	"write-file": writeFile,
	"fill-file":  fillFile,
	"resize":     resize,
	"remove":     func(p *process, rest string) error { p.run.tree.remove(text(rest)); return nil },

	"env":  printEnv,
	"args": printArgs,
	"print-args": func(p *process, _ string) error {
		for _, arg := range p.args {
			if err := p.println(executor.Stdout, arg); err != nil {
				return err
			}
		}
		return nil
	},
	"argv0": func(p *process, _ string) error { return p.println(executor.Stdout, p.argv0) },
	"cwd":   func(p *process, _ string) error { return p.println(executor.Stdout, workFolder) },
	"tmpdir": func(p *process, _ string) error {
		return p.println(executor.Stdout, strconv.FormatBool(!strings.HasPrefix(p.env["TMPDIR"]+"/", workFolder+"/")))
	},

	"set":          func(p *process, rest string) error { w := words(rest, 2); p.vars.set(w[0], w[1]); return nil },
	"get":          getName,
	"add":          addTo,
	"value":        showName,
	"display":      func(p *process, rest string) error { w := words(rest, 2); return p.display(w[0], []byte(w[1]), false) },
	"display-size": displaySize,
	"later":        later,
	"later-when":   laterWhen,
	"await":        await,
	"tick":         tick,
	"symlink":      symlink,
	"mkfifo":       mkfifo,

	"ignore-term": func(p *process, _ string) error { p.ignoring = true; return nil },
	"ignore-int":  func(p *process, _ string) error { p.ignoring = true; return nil },
	"on-term":     onTerm,
	"on-int": func(p *process, rest string) error {
		p.onInt = rest
		return nil
	},
	"spawn-grandchild": grandchild,
	"fork":             fork,
	"alloc":            alloc,
	"connect":          connect,
	"loopback":         func(p *process, _ string) error { return p.println(executor.Stdout, "up") },
	"import":           importName,
	"python":           func(p *process, _ string) error { return p.println(executor.Stdout, p.python) },
	"host-file":        hostFile,
	"wait":             func(p *process, rest string) error { return p.wait(nil, p.run.backend.world.gate(rest)) },

	"backend-error": func(p *process, rest string) error {
		w := words(rest, 2)
		return p.breakBackend(executor.Errorf(executor.Code(w[0]), "%s", w[1]))
	},
	"backend-die": func(p *process, _ string) error {
		return p.breakBackend(executor.Errorf(executor.Unavailable, "the backend has gone"))
	},
	"backend-panic": func(p *process, rest string) error { return p.breakBackend(panicked(text(rest))) },
}

// panicked makes Run panic.
type panicked string

// Error implements error.
func (e panicked) Error() string { return string(e) }

// breakBackend kills the program and its descendants, and makes Run return err.
func (p *process) breakBackend(err error) error {
	p.run.mu.Lock()
	p.run.failed = err
	p.run.mu.Unlock()
	return signaled("SIGKILL")
}

func writeHex(p *process, rest string) error {
	w := words(rest, 2)
	to, err := stream(w[0])
	if err != nil {
		return err
	}
	data, err := decodeHex(w[1])
	if err != nil {
		return err
	}
	return p.write(to, data)
}

func flood(p *process, rest string) error {
	w := words(rest, 2)
	to, err := stream(w[0])
	if err != nil {
		return err
	}
	total, err := size(w[1])
	if err != nil {
		return err
	}
	// A piece has ten thousand lines, so that only the first digits of its numbers differ from those of the piece before.
	const lines = 10_000
	var buf []byte
	for n := range lines {
		buf = fmt.Appendf(buf, "%015d\n", n)
	}
	// Without a pause a flood to a fast reader would stop the clock of a synctest bubble for ever. What floods for minutes of that
	// clock is slower after its beginning, because the bytes take real time.
	pause := time.Millisecond
	for n := int64(0); total > 0; n++ {
		first := fmt.Appendf(nil, "%011d", n)
		for at := 0; at < len(buf); at += len("000000000000000\n") {
			copy(buf[at:], first)
		}
		piece := buf[:min(int64(len(buf)), total)]
		total -= int64(len(piece))
		if err := p.write(to, piece); err != nil {
			return err
		}
		if n*int64(len(buf)) > 64<<20 {
			pause = time.Second
		}
		if err := p.sleep(pause); err != nil {
			return err
		}
	}
	return nil
}

func exit(_ *process, rest string) error {
	code, err := strconv.Atoi(rest)
	if err != nil {
		return &usageError{"not a code: " + rest}
	}
	return exited(code & 0xff)
}

func sleep(p *process, rest string) error {
	d, err := time.ParseDuration(rest)
	if err != nil {
		return &usageError{err.Error()}
	}
	return p.sleep(d)
}

func busy(p *process, rest string) error {
	d, err := time.ParseDuration(rest)
	if err != nil {
		return &usageError{err.Error()}
	}
	begin := time.Now()
	p.run.mu.Lock()
	left := p.run.job.Limits.CPUTime - p.run.cpu
	p.run.mu.Unlock()
	if limit := p.run.job.Limits.CPUTime; limit > 0 && d > left {
		defer time.AfterFunc(left, func() { p.run.timeOut(executor.FieldCPUTime) }).Stop()
	}
	err = p.sleep(d)
	p.run.mu.Lock()
	p.run.cpu += time.Since(begin)
	p.run.mu.Unlock()
	return err
}

func countStdin(p *process, _ string) error {
	total := 0
	if err := p.readAll(func(b []byte) error { total += len(b); return nil }); err != nil {
		return err
	}
	return p.println(executor.Stdout, strconv.Itoa(total))
}

func readLine(p *process, _ string) error {
	line, err := p.readLine()
	if err != nil {
		return err
	}
	return p.println(executor.Stdout, line)
}

func cat(p *process, rest string) error {
	f := p.run.tree.get(text(rest))
	if f == nil {
		return p.crash(1, "FileNotFoundError", strconv.Quote(text(rest)))
	}
	return p.write(executor.Stdout, f.data)
}

func exists(p *process, rest string) error {
	return p.println(executor.Stdout, strconv.FormatBool(p.run.tree.get(text(rest)) != nil))
}

func executable(p *process, rest string) error {
	f := p.run.tree.get(text(rest))
	return p.println(executor.Stdout, strconv.FormatBool(f != nil && f.mode&0o111 != 0))
}

func list(p *process, _ string) error {
	for _, name := range p.run.tree.names() {
		bytes := 0
		if f := p.run.tree.get(name); f != nil { // else a link to nothing
			bytes = len(f.data)
		}
		if err := p.println(executor.Stdout, fmt.Sprintf("%d %s", bytes, strconv.Quote(name))); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(p *process, rest string) error {
	w := words(rest, 2)
	return p.store(w[0], []byte(w[1]))
}

func fillFile(p *process, rest string) error {
	w := words(rest, 2)
	n, err := size(w[1])
	if err != nil {
		return err
	}
	if limit := p.run.diskLimit(); limit >= 0 && n > limit {
		p.run.noRoom()
		return p.crash(1, "OSError", "[Errno 28] No space left on device")
	}
	if n > 1<<30 {
		return &usageError{"the fake keeps files in memory: at most 1GB"}
	}
	return p.store(w[0], make([]byte, n))
}

// store writes a file for the program.
func (p *process) store(name string, data []byte) error {
	clean, err := inside(name, ".")
	if err != nil {
		return p.crash(1, "PermissionError", strconv.Quote(name))
	}
	if err := p.run.tree.put(clean, &file{data: data, mode: 0o644, changed: true}, p.run.diskLimit()); err != nil {
		p.run.noRoom()
		return p.crash(1, "OSError", err.Error())
	}
	return nil
}

func printEnv(p *process, _ string) error {
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		if err := p.println(executor.Stdout, strconv.Quote(name+"="+p.env[name])); err != nil {
			return err
		}
	}
	return nil
}

func printArgs(p *process, _ string) error {
	for _, arg := range p.args {
		if err := p.println(executor.Stdout, strconv.Quote(arg)); err != nil {
			return err
		}
	}
	return nil
}

func onTerm(p *process, rest string) error {
	code, err := strconv.Atoi(rest)
	if err != nil {
		return &usageError{"not a code: " + rest}
	}
	p.onTerm = &code
	return nil
}

// grandchild starts a descendant that ignores SIGTERM and holds the streams. Only SIGKILL ends it. In a Session it lives on
// after the Execution.
func grandchild(p *process, rest string) error {
	r := p.run
	if p.resident() {
		return later(p, "1h "+rest)
	}
	r.children.Go(func() {
		if r.pause(time.Hour) {
			r.write(r.killed.Done(), executor.Stdout, []byte(text(rest)+"\n"))
		}
	})
	return nil
}

func fork(p *process, rest string) error {
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return &usageError{"not a number: " + rest}
	}
	if limit := p.run.job.Limits.PIDs; p.run.backend.caps.PIDs && limit > 0 && n+1 > limit {
		return p.println(executor.Stdout, "refused after "+strconv.FormatInt(limit-1, 10))
	}
	return p.println(executor.Stdout, "forked "+rest)
}

func alloc(p *process, rest string) error {
	n, err := size(rest)
	if err != nil {
		return err
	}
	if err := p.run.allocate(n); err != nil {
		return signaled("SIGKILL")
	}
	return nil
}

// connect opens a real connection if the network is on. The test listens at the address.
func connect(p *process, rest string) error {
	r := p.run
	off := r.job.Spec.Network != executor.NetworkOn && r.backend.caps.NetworkOff
	if !off {
		ctx, cancel := context.WithTimeout(r.killed, 10*time.Second)
		defer cancel()
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", rest); err == nil {
			_ = conn.Close() // the test wants the connection, not its content
			return p.println(executor.Stdout, "connected")
		}
	}
	return p.println(executor.Stdout, "unreachable")
}

func importName(p *process, rest string) error {
	for _, requirement := range p.requirements {
		if name, version, _ := strings.Cut(requirement, "=="); name == rest {
			return p.println(executor.Stdout, version)
		}
	}
	return p.crash(1, "ModuleNotFoundError", "No module named "+strconv.Quote(rest))
}

// hostFile looks for the file on the real machine if the declared isolation lets programs see it.
func hostFile(p *process, rest string) error {
	if p.run.backend.caps.Isolation == executor.IsolationNone {
		if _, err := os.Stat(text(rest)); err == nil {
			return p.println(executor.Stdout, "visible")
		}
	}
	return p.println(executor.Stdout, "hidden")
}
