package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Result is what became of a part.
type Result struct {
	Part     Part
	Status   Status
	Time     time.Duration
	CPU      time.Duration // of the processes that the part waited for; a daemon is not among them
	Pressure float64       // share of the time in which something on the machine waited for a processor; -1 if unknown
	Report   *report       // nil if the part is no `go test`
}

// runner runs parts and prints what they say.
type runner struct {
	root string
	logs string // folder: the files of each part, see log

	goOn  bool                            // also after a failure
	first func() (last func(), err error) // nil, or what happens before the first part and after the last one
	wrap  func(command []string) []string // nil, or what makes real parts run under something else

	mu       sync.Mutex // held while something is printed
	out      io.Writer
	results  []Result
	served   []string // variables of parts that serve
	services []*service
}

// everything is what long parts require: all words of CONTRIBUTING.md but cgroup, which depends on the machine.
const everything = "root,box,index,docker,runsc,node,git,pty,nomad,consul"

// environ is the environment of a part.
func (r *runner) environ(p Part) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	env := append(os.Environ(),
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath"), // all copies of the repository share the cache of builds
		// A raced process waits a second at its end for other reports; our tests start hundreds of them.
		"GORACE=atexit_sleep_ms=50",
		"PYEXEC_TEST_RULES="+r.rules()) // the suites of backends record there which rules they have run
	if p.Test != nil && !slices.Contains(p.Test, "-race") {
		// As the product: with cgo, what imports net would be compiled twice. The race detector needs cgo, and so does the Nomad that a part builds.
		env = append(env, "CGO_ENABLED=0")
	}
	if p.Tier == Long {
		env = append(env, "PYEXEC_TEST_LONG=1")
		if _, set := os.LookupEnv("PYEXEC_TEST_REQUIRE"); !set {
			env = append(env, "PYEXEC_TEST_REQUIRE="+everything) // no skip passes for a result
		}
	}
	return slices.Concat(env, r.served, p.Env)
}

// rules is the folder for records of the rules that the suites have run.
func (r *runner) rules() string { return filepath.Join(r.logs, "rules") }

// run runs one part. Its output stays together, below the line that the part has ended with.
func (r *runner) run(ctx context.Context, p Part) Status {
	r.print("=== %s\n", p.Name)
	result := Result{Part: p, Status: Passed, Pressure: -1}
	command, err := p.command(r.root)
	if err != nil {
		return r.end(result, nil, err)
	}
	if r.wrap != nil && p.Real {
		command = r.wrap(command)
	}
	command = p.apart(r.root, command)
	file, err := os.Create(r.log(p) + ".json")
	if err != nil {
		return r.end(result, nil, err)
	}
	defer file.Close()

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = filepath.Join(r.root, p.Dir)
	cmd.Env = r.environ(p)
	var said bytes.Buffer
	begin, waited := time.Now(), pressure()
	switch {
	case p.Serves:
		err = r.serve(ctx, cmd, &said)
	case p.Test != nil:
		result.Report, err = r.test(ctx, cmd, file)
		said.Write(result.Report.printed.Bytes())
		if p.Floors && err == nil {
			err = r.floors(ctx, &said)
		}
	default:
		cmd.Stdout = io.MultiWriter(&said, file)
		cmd.Stderr = cmd.Stdout
		err = runGroup(ctx, cmd)
	}
	result.Time = time.Since(begin)
	if cmd.ProcessState != nil {
		result.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	result.Pressure = share(waited, pressure(), result.Time)
	return r.end(result, said.Bytes(), err)
}

// floors compares the coverage in what a part has said.
func (r *runner) floors(ctx context.Context, said *bytes.Buffer) error {
	cmd := exec.Command("tools/coverage.sh", "/dev/stdin")
	cmd.Dir, cmd.Stdin = r.root, bytes.NewReader(said.Bytes())
	cmd.Stdout, cmd.Stderr = said, said
	return runGroup(ctx, cmd)
}

// end prints what a part said, and keeps its result.
func (r *runner) end(result Result, said []byte, err error) Status {
	if err != nil {
		result.Status = Failed
		said = fmt.Append(said, err, "\n")
	}
	if err := os.WriteFile(r.log(result.Part)+".txt", said, 0o600); err != nil {
		said = fmt.Append(said, err, "\n")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, result)
	fmt.Fprintf(r.out, "--- %s: %.0f s, %s\n%s", result.Part.Name, result.Time.Seconds(), result.Status, said)
	return result.Status
}

// log is the path of a part's log, without its kind: .json is all that was said, .txt is what was printed.
func (r *runner) log(p Part) string {
	return filepath.Join(r.logs, strings.NewReplacer("/", "-", " ", "-").Replace(p.Name))
}

// test runs `go test -json`.
func (r *runner) test(ctx context.Context, cmd *exec.Cmd, raw io.Writer) (*report, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return &report{}, err
	}
	defer from.Close()
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = to, &complaints
	var rep *report
	var readErr error
	read := make(chan struct{})
	go func() {
		defer close(read)
		rep, readErr = readReport(from, raw)
	}()
	err = runGroup(ctx, cmd)
	to.Close()
	// What a test left running may hold the pipe. Closing this side ends the reading.
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		from.Close()
		<-read
	}
	rep.printed.Write(complaints.Bytes())
	if err == nil && len(rep.failed) > 0 {
		err = errors.New("go test has not failed, but tests have")
	}
	if err == nil && readErr != nil && !errors.Is(readErr, os.ErrClosed) {
		err = readErr
	}
	return rep, err
}

// runGroup runs a command in a process group of its own. When ctx ends, the group ends.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second // what a child left running may hold the output
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	err := cmd.Wait()
	close(ended)
	<-stopped
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (r *runner) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format, args...)
}

// pressure returns the time since the start of the machine in which something waited for a processor; -1 if that is unknown.
func pressure() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return -1
	}
	_, number, _ := strings.Cut(string(text), "total=")
	var micro int64
	if _, err := fmt.Sscan(number, &micro); err != nil {
		return -1
	}
	return time.Duration(micro) * time.Microsecond
}

func share(before, after, of time.Duration) float64 {
	if before < 0 || after < 0 || of <= 0 {
		return -1
	}
	return float64(after-before) / float64(of)
}

// table prints the seconds of each part, and what was not run.
func (r *runner) table(parts []Part, status map[string]Status, all time.Duration) {
	fmt.Fprintf(r.out, "\n%-28s %7s %7s %8s %6s %7s %5s  %s\n", "part", "seconds", "cpu", "pressure", "tests", "skipped", "long", "result")
	for _, result := range r.results {
		tests := fmt.Sprintf("%6s %7s %5s", "", "", "")
		if result.Report != nil {
			tests = fmt.Sprintf("%6d %7d %5d", result.Report.tests, result.Report.skipped, result.Report.long)
		}
		fmt.Fprintf(r.out, "%-28s %7.0f %7.0f %8s %s  %s\n", result.Part.Name, result.Time.Seconds(), result.CPU.Seconds(), percent(result.Pressure), tests, result.Status)
	}
	for _, p := range parts {
		if status[p.Name] == NotStarted {
			fmt.Fprintf(r.out, "%-28s %47s%s\n", p.Name, "", NotStarted)
		}
	}
	fmt.Fprintf(r.out, "%-28s %7.0f\n", "all", all.Seconds())
	// The end of a long log is what people see first.
	for _, result := range r.results {
		if result.Status != Failed {
			continue
		}
		fmt.Fprintf(r.out, "FAILED: %s\n", result.Part.Name)
		if result.Report != nil {
			for _, f := range leaves(result.Report.failed) {
				fmt.Fprintf(r.out, "        %s\n%s", f, result.Report.why[f])
			}
		}
	}
}

func percent(share float64) string {
	if share < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
