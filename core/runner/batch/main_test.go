//go:build linux

package batch

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// TestMain is also the runner that the tests start, and what a container's runtime does before.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "inside" {
		_, _ = os.Stderr.WriteString(enterInside(os.Args[2], os.Args[3:]).Error() + "\n")
		os.Exit(agent.ExitBroken)
	}
	leaktest.Main(m)
}

// testUID is the program's user: nobody else's, because tests kill all that runs as theirs.
var testUID = 1<<20 + os.Getpid()%100_000*4096 + 77

var uid = strconv.Itoa(testUID)

// keptCapabilities are those of the package's documentation.
var keptCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID,
}

// enterInside makes this process what a container runtime would start: PID 1 of its namespace with a /proc of its own, root with
// few capabilities, in the control groups that are named by a list with colons. Then it executes the runner.
func enterInside(groups string, args []string) error {
	runtime.LockOSThread()
	for _, dir := range strings.FieldsFunc(groups, func(r rune) bool { return r == ':' }) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return err
		}
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
	)
	var mask uint32
	for c := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(keptCapabilities, c) {
			mask |= 1 << c
		} else {
			err = errors.Join(err, unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0))
		}
	}
	sets := [2]unix.CapUserData{{Effective: mask, Permitted: mask}}
	if err = errors.Join(err, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", append([]string{"test", "runner"}, args...), append(os.Environ(), "NOMAD_SECRET=never"))
}

// place is what Nomad gives a task: its folders, open to everybody.
type place struct {
	t                         *testing.T
	root                      string
	alloc, local, secrets     string
	input, output, work, temp string
	groups                    sandbox.Cgroups
}

func newPlace(t *testing.T) *place {
	t.Helper()
	needtest.NeedRoot(t) // for a pid namespace
	root, err := os.MkdirTemp("", "runner-batch-*")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(root)) })
	must(t, os.Chmod(root, 0o711))
	p := &place{t: t, root: root}
	const nobody = 65534
	for _, dir := range []struct {
		name  string
		at    *string
		owner int
		mode  os.FileMode
	}{
		{"alloc", &p.alloc, nobody, 0o777}, {"alloc/data", nil, nobody, 0o777}, {"alloc/logs", nil, nobody, 0o777},
		{"local", &p.local, nobody, 0o777}, {"secrets", &p.secrets, nobody, 0o777}, {"local/input", &p.input, 0, 0o755},
		{"work", &p.work, testUID, 0o700}, {"temp", &p.temp, testUID, 0o700},
	} {
		path := filepath.Join(root, dir.name)
		must(t, os.Mkdir(path, 0o700))
		must(t, os.Chmod(path, dir.mode))
		must(t, os.Chown(path, dir.owner, dir.owner))
		if dir.at != nil {
			*dir.at = path
		}
	}
	p.output = filepath.Join(p.alloc, "out")
	return p
}

// start returns an Execution that runs a shell script.
func (p *place) start(script string) job.Start {
	return job.Start{
		Start:  protocol.Start{ExecutionID: "exe_1", Command: []string{"/bin/sh", "-c", script}, Path: "/usr/bin:/bin", Network: true, Limits: limits()},
		Config: p.config(), Protect: []string{p.alloc, p.local, p.secrets, filepath.Join(p.root, "missing")}, Image: "sha256:1",
	}
}

func (p *place) python(code string) job.Start {
	s := p.start("")
	s.Start.Command, s.Start.Code = nil, code
	return s
}

func (p *place) config() protocol.Config {
	return protocol.Config{WorkRoot: p.work, UseWorkRoot: true, Temp: p.temp, UID: testUID, GID: testUID}
}

func limits() executor.Limits {
	return executor.Limits{
		Timeout: awaittest.Forever, MemoryBytes: 512 << 20, DiskBytes: 64 << 20, CPUShares: 1024, PIDs: 64, OutputBytes: 64 << 20, KillGrace: awaittest.Forever,
	}
}

func (p *place) write(name string, content []byte) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.input, name), content, 0o644))
}

func (p *place) writeJSON(name string, v any) {
	p.t.Helper()
	raw, err := json.Marshal(v)
	must(p.t, err)
	p.write(name, raw)
}

// process is a runner that was started.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// launch starts a runner as PID 1 of something like a container.
func (p *place) launch(command string, more ...string) *process {
	p.t.Helper()
	r := p.process(command, more...)
	must(p.t, r.Start())
	return r
}

// process is launch without the start.
func (p *place) process(command string, more ...string) *process {
	p.t.Helper()
	groups := strings.Join(slices.Compact(slices.Sorted(maps.Values(p.groups))), ":")
	r := &process{Cmd: exec.Command("/proc/self/exe", append([]string{"inside", groups, command, "--input", p.input, "--output", p.output}, more...)...)}
	r.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	p.t.Cleanup(func() {
		if r.Process != nil && r.ProcessState == nil {
			_ = r.Process.Kill()
			_ = r.Cmd.Wait()
		}
	})
	return r
}

// end waits for a runner and returns its exit code; -1 if it was killed.
func (r *process) end() int {
	_ = r.Cmd.Wait() // the exit code says it
	return r.ProcessState.ExitCode()
}

// outcome is what a runner has left.
type outcome struct {
	*process
	code     int
	begin    job.Begin
	kinds    []string
	out      [2]string
	started  []executor.Started
	progress []executor.Progress
	files    map[string]string
	result   *executor.Result
	prepared *job.Prepared
	err      error // the runner's own
}

// run runs start to its end.
func (p *place) run(start job.Start) *outcome {
	p.t.Helper()
	p.writeJSON(job.StartFile, start)
	return p.outcome(p.launch("job"))
}

func (p *place) outcome(r *process) *outcome {
	p.t.Helper()
	code := r.end()
	o := p.read()
	o.process, o.code = r, code
	return o
}

// read reads what there is.
func (p *place) read() *outcome {
	p.t.Helper()
	o := &outcome{files: map[string]string{}}
	f, err := os.Open(filepath.Join(p.output, job.EventsFile))
	if errors.Is(err, os.ErrNotExist) {
		return o
	}
	must(p.t, err)
	defer f.Close()
	r := job.NewReader(f, executor.Resume{})
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return o
		}
		must(p.t, err)
		p.note(o, rec)
	}
}

func (p *place) note(o *outcome, rec job.Record) {
	p.t.Helper()
	switch {
	case rec.Begin != nil:
		o.begin = *rec.Begin
	case rec.Artifact != nil:
		o.kinds = append(o.kinds, "artifact")
		o.files[rec.Artifact.Header.Path] = p.content(*rec.Artifact)
	case rec.Prepared != nil:
		o.prepared = rec.Prepared
	case rec.Result != nil:
		o.result = rec.Result
	case rec.Error != nil:
		o.err = rec.Error.Err()
	default:
		o.kinds = append(o.kinds, string(rec.Event.Body.Kind()))
		switch b := rec.Event.Body.(type) {
		case executor.Output:
			o.out[protocol.StreamIndex(b.Stream)] += string(b.Data)
		case executor.Started:
			o.started = append(o.started, b)
		case executor.Progress:
			o.progress = append(o.progress, b)
		}
	}
}

// content reads a collected file by its place, and compares it with the tar.
func (p *place) content(a job.Artifact) string {
	p.t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.output, job.ArtifactsFile))
	must(p.t, err)
	text := string(raw[a.Offset : a.Offset+a.Header.Size])
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		must(p.t, err)
		if h.Name != a.Header.Path {
			continue
		}
		inTar, err := io.ReadAll(r)
		must(p.t, err)
		if string(inTar) != text {
			p.t.Errorf("%s: the tar has %d bytes, the place %d", h.Name, len(inTar), len(text))
		}
		return text
	}
}

// brief is how it ended, in a few words.
func (o *outcome) brief() string {
	switch {
	case o.err != nil:
		return "error " + string(executor.CodeOf(o.err)) + " " + o.err.Error()
	case o.result == nil:
		return "no result"
	}
	s := string(o.result.Status)
	if o.result.ExitCode != nil {
		s += " exit " + strconv.Itoa(*o.result.ExitCode)
	}
	if o.result.Signal != "" {
		s += " " + o.result.Signal
	}
	if f := o.result.Failure; f != nil {
		s += " " + string(f.Phase) + " " + string(f.Code) + " " + f.Field + ": " + f.Message
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
