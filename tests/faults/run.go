package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Verdict says what the tests made of one fault.
type Verdict struct {
	Status  Status
	By      string  // the test that noticed it or hung, or the reason of Void and Broken
	Seconds float64 // of all its runs
}

// Status is the kind of a Verdict.
type Status string

// The statuses of a fault. Only Noticed and Hung count as noticed; Void and Broken say nothing about the tests.
const (
	Noticed  Status = "noticed"  // a test failed
	Hung     Status = "hung"     // a test did not end within its bound
	Survived Status = "survived" // all tests passed
	Void     Status = "void"     // the tests fail, or do not run, without the fault
	Broken   Status = "broken"   // the fault cannot be put in, or does not compile
)

// Runner runs tests in a Workspace. It is for one caller at a time.
type Runner struct {
	Workspace *Workspace
	// Output gets what go test prints for a clean run that fails and for a fault that is Hung or Broken. Nil: nobody.
	Output func(title string, output []byte)
	// Trust leaves out the runs without a fault: quicker, and a test that fails anyway counts as one that notices.
	Trust bool
	// Long runs the tests as a long part does, so that those of needtest.Long are not skipped.
	Long  bool
	clean map[string]outcome
}

// outcome is one run of go test.
type outcome struct {
	status  Status
	by      string
	ran     int           // tests that ran and were not skipped
	took    time.Duration // of the tests, without the build
	wall    time.Duration
	output  []byte
	skipped string // a skipped test, if none ran
}

// firstBound bounds a run of which nothing is known. A fault may take three times as long as the clean run, and spare more.
const (
	firstBound = 40 * time.Minute
	trustBound = 3 * time.Minute
	spare      = time.Minute
)

func (r *Runner) key(test Test) string { return fmt.Sprint(r.Long, " ", test) }

// Clean runs a test without a fault, once per Runner, and reports why it says nothing about faults: it fails, or nothing runs.
func (r *Runner) Clean(ctx context.Context, test Test) (reason string) {
	if r.Trust {
		return ""
	}
	key := r.key(test)
	run, known := r.clean[key]
	if !known {
		run = r.run(ctx, test, firstBound)
		if r.clean == nil {
			r.clean = map[string]outcome{}
		}
		r.clean[key] = run
		if run.status != Survived {
			r.print("without a fault: "+test.String(), run.output)
		}
	}
	switch {
	case run.status != Survived:
		return fmt.Sprintf("%s without a fault: %s", run.status, run.by)
	case run.ran == 0 && run.skipped != "":
		return run.skipped + " is skipped"
	case run.ran == 0:
		return "no test runs"
	}
	return ""
}

// Try runs the tests in their order up to the first that notices a fault. put puts the fault in, and undo takes it out again: a test runs
// once without a fault before it meets the first one.
func (r *Runner) Try(ctx context.Context, put func() (undo func() error, err error), tests []Test) Verdict {
	verdict := Verdict{Status: Void, By: "no tests cover it"}
	ran := 0
	for _, test := range tests {
		if reason := r.Clean(ctx, test); reason != "" {
			if verdict.Status == Void {
				verdict.By = reason + " (" + test.String() + ")"
			}
			continue
		}
		bound := 3*r.clean[r.key(test)].took + spare
		if r.Trust {
			bound = trustBound
		}
		undo, err := put()
		if err != nil {
			return Verdict{Status: Broken, By: err.Error()}
		}
		run := r.run(ctx, test, bound)
		if err := undo(); err != nil {
			panic(fmt.Sprintf("the fault was not taken out: %v", err)) // every verdict after it would be wrong
		}
		verdict.Seconds += run.wall.Seconds()
		if run.status != Survived {
			if run.status != Noticed {
				r.print(string(run.status)+": "+test.String(), run.output)
			}
			return Verdict{Status: run.status, By: run.by, Seconds: verdict.Seconds}
		}
		if ran += run.ran; ran > 0 {
			verdict.Status, verdict.By = Survived, ""
		} else {
			verdict.By = "no test runs"
		}
	}
	return verdict
}

func (r *Runner) print(title string, output []byte) {
	if r.Output != nil {
		r.Output(title, output)
	}
}

// run builds what the test needs beside its packages, and runs it. -vet=off: lint vets.
func (r *Runner) run(ctx context.Context, test Test, bound time.Duration) (result outcome) {
	begin := time.Now()
	result.status = Survived
	defer func() {
		end := time.Now()
		result.wall = end.Sub(begin)
	}()
	if target := makes(test); target != "" {
		if out, ok := r.command(ctx, firstBound, ".", "make", "--no-print-directory", target); !ok {
			return outcome{status: Broken, by: "make " + target, output: out}
		}
	}
	args := append([]string{"test", "-json", "-count=1", "-failfast", "-vet=off", "-timeout", bound.String()}, test.Args...)
	out, ok := r.command(ctx, bound+firstBound, test.Module, "go", args...)
	result.read(out, ok)
	return result
}

// makes is the target of make without whose result the test would use a product that has no fault.
func makes(test Test) string {
	switch {
	case test.Module == "tests" && !slices.ContainsFunc(test.Packages(), func(p string) bool { return strings.HasPrefix(p, "./faults") }):
		return "build"
	case slices.Contains(test.Args, "embedrunner"):
		return "core/runner/binary/runner.bin"
	}
	return ""
}

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output, FailedBuild string
	Elapsed                                    float64
}

var stillRunning = regexp.MustCompile(`(?m)^\s+(Test\S+) \([0-9hms.]+\)$`)

// read fills the outcome from what go test -json printed.
func (o *outcome) read(out []byte, ok bool) {
	var failed, failedPackage string
	ran := map[string]bool{}
	var text bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			text.Write(lines.Bytes())
			text.WriteByte('\n')
			continue
		}
		text.WriteString(e.Output)
		name := e.Package + " " + e.Test
		switch {
		case e.FailedBuild != "" || e.Action == "build-fail":
			o.status, o.by = Broken, "does not compile"
		case e.Action == "run":
			ran[name] = true
		case e.Action == "skip" && e.Test != "":
			delete(ran, name)
			o.skipped = e.Test
		case e.Action == "fail" && e.Test == "":
			failedPackage = e.Package
			o.took += time.Duration(e.Elapsed * float64(time.Second))
		case e.Action == "fail" && failed == "":
			failed = e.Test // the first is the deepest: a subtest ends before the test around it
		case e.Action == "pass" && e.Test == "":
			o.took += time.Duration(e.Elapsed * float64(time.Second))
		}
	}
	o.output, o.ran = text.Bytes(), len(ran)
	if o.status == Broken || ok {
		return
	}
	o.status, o.by = Noticed, failed
	if bytes.Contains(o.output, []byte("panic: test timed out after")) {
		o.status = Hung
		if found := stillRunning.FindSubmatch(o.output); found != nil {
			o.by = string(found[1])
		}
	}
	switch {
	case o.by != "":
	case failedPackage == "": // go test itself was ended by the bound
		o.status, o.by = Hung, "go test did not end"
	default:
		o.by = "the package " + failedPackage
	}
}

// command runs a command in a folder of the copy, in a process group of its own, and ends after it whatever it has started.
func (r *Runner) command(ctx context.Context, bound time.Duration, folder, name string, args ...string) (output []byte, ok bool) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.Workspace.Root, folder)
	cmd.Env = append(os.Environ(), "GOFLAGS="+trimpath(os.Getenv("GOFLAGS")), "PWD="+cmd.Dir)
	if r.Long {
		cmd.Env = append(cmd.Env, "PYEXEC_TEST_LONG=1")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	own(cmd)
	stop := time.AfterFunc(bound, func() { _ = cmd.Cancel() })
	defer stop.Stop()
	cmd.WaitDelay = 10 * time.Second // a process that was left may hold the pipe
	err := cmd.Start()
	if err == nil {
		stopped := reapOrphans(cmd.Process.Pid)
		err = cmd.Wait()
		stopped()
	}
	endChildren()
	return out.Bytes(), err == nil
}

// trimpath makes all copies of the workspace share the build cache.
func trimpath(flags string) string {
	if slices.Contains(strings.Fields(flags), "-trimpath") {
		return flags
	}
	return strings.TrimSpace(flags + " -trimpath")
}
