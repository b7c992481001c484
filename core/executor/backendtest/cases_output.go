package backendtest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func outputRules() []rule {
	return []rule{
		{"BE-21", "output is bytes: every value passes unchanged, valid text or not", bytesUnchanged},
		{"BE-22", "output is live: it arrives while the program runs", live},
		{"BE-23", "a flood meets back-pressure: with a slow sink all of it arrives and memory stays flat", slowSink},
		{"BE-24", "an error of the sink stops the program, and Run returns that error", sinkError},
		{"BE-25", "output beyond the cap is counted, not kept, per stream, and the program goes on", outputCap},
		{"BE-26", "each stream keeps its own order, however they interleave", interleaved},
	}
}

func bytesUnchanged(c *Case) {
	r := c.program(Program{
		Python: ` # the code is text, whatever encoding its file once had
# coding: latin-1
import sys
sys.stdout.buffer.write(bytes(range(256)) + "grüße ☃ 𝄞".encode() + b"\xff\xfe\xc3")
sys.stderr.buffer.write(b"\x00\x80\xf0\x9d")
`,
		Fake: "hex stdout " + fmt.Sprintf("%x", everyByte()+"grüße ☃ 𝄞"+"\xff\xfe\xc3") + "\nhex stderr 0080f09d\n",
	}).succeeded()
	if want := everyByte() + "grüße ☃ 𝄞\xff\xfe\xc3"; r.stdout() != want {
		c.Errorf("stdout is %q, want %q", r.stdout(), want)
	}
	if r.stderr() != "\x00\x80\xf0\x9d" {
		c.Errorf("stderr is %q", r.stderr())
	}
}

func everyByte() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func live(c *Case) {
	job := c.job(Program{
		Python: "import sys\nprint('first')\nsys.stdout.write(sys.stdin.readline())\n",
		Fake:   "print first\nread-line",
	})
	in, out := io.Pipe()
	c.Cleanup(func() { _ = out.Close() }) // a pipe's Close returns no error
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return in })
	r := c.start(job)
	r.says("first\n")
	if _, err := io.WriteString(out, "second\n"); err != nil {
		c.Errorf("write stdin: %v", err)
	}
	r.says("second\n")
	r.wait().succeeded()
}

// floodProgram returns a program that writes megabytes of numbered lines to a stream, then "done" to the other.
func floodProgram(stream executor.Stream, megabytes int) Program {
	other := map[executor.Stream]executor.Stream{executor.Stdout: executor.Stderr, executor.Stderr: executor.Stdout}[stream]
	end := map[executor.Stream]string{executor.Stdout: "print", executor.Stderr: "print-err"}[other]
	return Program{
		Python: fmt.Sprintf(`
import sys
for start in range(0, %d << 16, 4096):
    sys.%s.buffer.write(b"".join(b"%%015d\n" %% i for i in range(start, start + 4096)))
sys.%s.flush()
print("done", file=sys.%s)
`, megabytes, stream, stream, other),
		Fake: fmt.Sprintf("flood %s %dMB\n%s done\n", stream, megabytes, end),
	}
}

// checkFlood returns what is wrong with a piece of numbered lines that begins at offset, or "" if nothing is.
func checkFlood(offset int64, data []byte) string {
	line := fmt.Appendf(nil, "%015d\n", offset/16)
	for len(data) > 0 {
		skip := offset % 16
		n := min(len(data), int(16-skip))
		if string(data[:n]) != string(line[skip:int(skip)+n]) {
			return fmt.Sprintf("at offset %d stands %q instead of %q", offset, clip(string(data[:n])), line[skip:])
		}
		data, offset = data[n:], offset+int64(n)
		for at := len(line) - 2; ; at-- { // increments the number in place, which is faster than formatting it
			if line[at]++; line[at] <= '9' {
				break
			}
			line[at] = '0'
		}
	}
	return ""
}

// slowSink counts a growth of memory only if it comes again, because what else runs in this process takes memory, too.
func slowSink(c *Case) {
	megabytes := 20
	if c.suite.lane == LaneProcess {
		megabytes = 64 // a whole process's memory is measured; the flood must stand out of its noise
	}
	var grown int64
	for range 3 {
		grown = growsBy(c, megabytes)
		c.Logf("memory grew by %d KiB during a flood of %d MiB", grown>>10, megabytes)
		if grown <= int64(megabytes)<<20/2 {
			return
		}
	}
	c.Errorf("memory grew by %d MiB during a flood of %d MiB", grown>>20, megabytes)
}

// growsBy returns by how much the memory grows while a flood meets a slow Sink. It stops the Sink at five points until the memory grows no
// more, which includes what the Backend buffers.
func growsBy(c *Case, megabytes int) int64 {
	job := c.job(floodProgram(executor.Stdout, megabytes))
	job.Limits.OutputBytes = 1 << 30
	total := int64(megabytes) << 20
	memory := c.memory()
	before := memory()
	grown := int64(0)
	r := c.start(job, func(r *running) {
		wrong := false
		r.onEmit = func(e executor.Event) error {
			out, ok := e.Body.(executor.Output)
			if !ok || out.Stream != executor.Stdout {
				return nil
			}
			if at := checkFlood(out.Offset, out.Data); at != "" && !wrong {
				wrong = true
				c.Errorf("the flood came back changed: %s", at)
			}
			end := out.Offset + int64(len(out.Data))
			if step := total / 5; out.Offset/step != end/step {
				grown = max(grown, awaittest.Settled(c, "the memory", memory)-before)
			}
			return nil
		}
	})
	r.wait().succeeded()
	if got := r.next[executor.Stdout]; got != total || r.result.StdoutBytes != total || r.result.StdoutTruncated {
		c.Errorf("%d of %d bytes came back, the Result says %d, truncated %t", got, total, r.result.StdoutBytes, r.result.StdoutTruncated)
	}
	if r.stderr() != "done\n" {
		c.Errorf("stderr is %q", clip(r.stderr()))
	}
	return grown
}

// memory returns a function that measures the live memory of the Backend's process.
func (c *Case) memory() func() int64 {
	if pid := c.suite.info.Details["pid"]; c.suite.lane == LaneProcess && pid != "" {
		if _, ok := residentBytes(pid); ok {
			return func() int64 {
				n, _ := residentBytes(pid)
				return n
			}
		}
	}
	return func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
	}
}

func sinkError(c *Case) {
	full := executor.Errorf(executor.Exhausted, "the log is full")
	for name, p := range map[string]Program{
		"a flood": floodProgram(executor.Stdout, 20),
		"silence after one line": {
			Python: "import time\nprint('x')\ntime.sleep(3600)\n",
			Fake:   "print x\nhang",
		},
		"one that ignores SIGTERM": {
			Python: "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('x')\ntime.sleep(3600)\n",
			Fake:   "ignore-term\nprint x\nhang",
		},
	} {
		job := c.job(p)
		job.Limits.KillGrace = 100 * time.Millisecond
		r := c.start(job, func(r *running) {
			r.onEmit = func(e executor.Event) error {
				if _, ok := e.Body.(executor.Output); ok {
					return full
				}
				return nil
			}
		}).wait()
		if r.err == nil {
			c.Errorf("%s: Run returned no error, %s", name, r.verdict())
		} else if got, ok := errors.AsType[*executor.Error](r.err); !ok || got.Code != full.Code || !strings.Contains(got.Error(), full.Message) {
			c.Errorf("%s: Run returned %v, want the sink's own error", name, r.err)
		}
	}
	if !c.caps().Artifacts {
		return
	}
	job := c.job(Program{Python: "open('a.txt', 'w').write('a')\n", Fake: "write-file a.txt a"})
	job.Spec.Outputs = []string{"*.txt"}
	r := c.start(job, func(r *running) { r.onArtifact = func(*tar.Header) error { return full } }).wait()
	if executor.CodeOf(r.err) != full.Code {
		c.Errorf("an artifact that the sink refused: Run returned %v, want the sink's own error", r.err)
	}
}

func outputCap(c *Case) {
	const limit = 1000
	for _, stream := range []executor.Stream{executor.Stdout, executor.Stderr} {
		job := c.job(floodProgram(stream, 1))
		job.Limits.OutputBytes = limit
		r := c.run(job).succeeded()
		other := executor.Stdout
		if stream == executor.Stdout {
			other = executor.Stderr
		}
		if got := r.text(stream); len(got) != limit || checkFlood(0, []byte(got)) != "" {
			c.Errorf("%d bytes of %s were kept, want the first %d", len(got), stream, limit)
		}
		if got := r.text(other); got != "done\n" {
			c.Errorf("the other stream is %q", got)
		}
		res := r.result
		counted, truncated, otherTruncated := res.StdoutBytes, res.StdoutTruncated, res.StderrTruncated
		if stream == executor.Stderr {
			counted, truncated, otherTruncated = res.StderrBytes, res.StderrTruncated, res.StdoutTruncated
		}
		if counted != 1<<20 || !truncated || otherTruncated {
			c.Errorf("%s: %d bytes counted, truncated %t, the other %t", stream, counted, truncated, otherTruncated)
		}
	}
	// Output of exactly the limit is not truncated.
	job := c.job(Program{Python: fmt.Sprintf("print('x' * %d, end='')\n", limit), Fake: "write " + strings.Repeat("x", limit)})
	job.Limits.OutputBytes = limit
	if r := c.run(job).succeeded(); r.result.StdoutTruncated || r.result.StdoutBytes != limit {
		c.Errorf("exactly the limit: %d bytes, truncated %t", r.result.StdoutBytes, r.result.StdoutTruncated)
	}
}

func interleaved(c *Case) {
	const lines = 2000
	var fake, out, errs strings.Builder
	for i := range lines {
		fmt.Fprintf(&fake, "print o%d\nprint-err e%d\n", i, i)
		fmt.Fprintf(&out, "o%d\n", i)
		fmt.Fprintf(&errs, "e%d\n", i)
	}
	r := c.program(Program{
		Python: fmt.Sprintf(`
import sys
for i in range(%d):
    print("o%%d" %% i)
    print("e%%d" %% i, file=sys.stderr)
`, lines),
		Fake: fake.String(),
	}).succeeded()
	if r.stdout() != out.String() || r.stderr() != errs.String() {
		c.Errorf("the streams came back in another order or not whole: %d and %d bytes, want %d and %d",
			len(r.stdout()), len(r.stderr()), out.Len(), errs.Len())
	}
}
