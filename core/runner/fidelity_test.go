//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// fidelityWay is a way of running scripts. Of all ways users see the same, or the way was StartExec.
type fidelityWay struct {
	name string
	run  func(t *testing.T, python string, s *fidelityScript) outcome
}

// TestProgramsRunAsUnderPlainPython runs each script of testdata/fidelity on the system's interpreter: in a fork, and every fourth in
// the other ways, too. A long part runs each script in all ways on each interpreter.
func TestProgramsRunAsUnderPlainPython(t *testing.T) {
	files, err := filepath.Glob("testdata/fidelity/*.txt")
	must(t, err)
	asUnderRunner(t)
	pythons := fidelityPythons(t)
	if !needtest.IsLong() {
		pythons = pythons[:1]
	}
	shares := make([]map[string][]*fidelityScript, len(pythons))
	n := 0
	for _, file := range files {
		for _, s := range readFidelity(t, file) {
			n++
			for i, p := range pythons {
				if shares[i] == nil {
					shares[i] = map[string][]*fidelityScript{}
				}
				if p.minor >= s.from && (i == 0 || !s.once) {
					shares[i][file] = append(shares[i][file], s)
				}
			}
		}
	}
	if n < 150 {
		t.Errorf("%d scripts, at least 150 are wanted", n)
	}
	t.Run("on", func(t *testing.T) { // its end waits for the parallel ones
		uid := testUID
		for i, p := range pythons {
			parts := 1
			if !needtest.IsLong() {
				parts = 4
			}
			for part := range parts {
				uid++
				as := Config{UID: uid, GID: uid, OwnUID: true}
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					ways := fidelityWays(t, p, as)
					for n := part; n < len(files); n += parts {
						t.Run(strings.TrimSuffix(filepath.Base(files[n]), ".txt"), func(t *testing.T) { compareWays(t, ways, p.path, shares[i][files[n]]) })
					}
				})
			}
		}
	})
}

// asUnderRunner gives this process what every runner has and programs inherit: the umask, limits, and no inherited descriptors.
func asUnderRunner(t *testing.T) {
	t.Helper()
	mask := unix.Umask(0o022)
	t.Cleanup(func() { unix.Umask(mask) })
	must(t, unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC))
	for resource, soft := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 1024} {
		var old syscall.Rlimit
		must(t, syscall.Getrlimit(resource, &old))
		must(t, syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, old.Max), Max: old.Max}))
		t.Cleanup(func() { must(t, syscall.Setrlimit(resource, &old)) })
	}
}

// fidelityWays returns all ways to run scripts with an interpreter. as has the uid that programs get, where they may have another
// than ours.
func fidelityWays(t *testing.T, p fidelityPython, as Config) []fidelityWay {
	cfg := testConfig(t)
	cfg.UID, cfg.GID, cfg.OwnUID, cfg.Reach = as.UID, as.GID, as.OwnUID, p.reach
	if !p.forAll || !isRoot() {
		cfg = Config{WorkRoot: cfg.WorkRoot}
	}
	return []fidelityWay{plainWay(cfg), fourth(runnerWay(t, cfg, false), 2), forkWay(t, cfg), fourth(aheadWay(t, cfg), 0)}
}

// fourth is a way for every fourth script, of four in a row the one with the number turn. In a long part it is for each script.
func fourth(w fidelityWay, turn int) fidelityWay {
	run, n := w.run, 0
	w.run = func(t *testing.T, python string, s *fidelityScript) outcome {
		t.Helper()
		if n++; n%4 != turn && !needtest.IsLong() {
			return outcome{how: executor.StartExec, refused: true}
		}
		return run(t, python, s)
	}
	return w
}

// compareWays runs scripts in all ways. The first is what the others must be like.
func compareWays(t *testing.T, ways []fidelityWay, python string, scripts []*fidelityScript) {
	for _, s := range scripts {
		want := ways[0].run(t, python, s)
		for _, w := range ways[1:] {
			got := w.run(t, python, s)
			if got.refused {
				continue
			}
			if diff := want.difference(got); diff != "" {
				t.Errorf("%s: - %s, + %s\n%s", s.name, ways[0].name, w.name, diff)
			}
			if got.how == executor.StartFork && s.fresh != "" {
				t.Errorf("%s: %s started it by %s, but it needs a fresh interpreter (%s)", s.name, w.name, got.how, s.fresh)
			}
		}
	}
}

// fidelityPython is an interpreter.
type fidelityPython struct {
	name, path string
	minor      int
	forAll     bool     // other uids may execute it
	reach      []string // as in Config
}

// fidelityPythons finds the system's interpreter, and one each of the versions from 3.9 on: on the PATH or of pyenv.
func fidelityPythons(t *testing.T) []fidelityPython {
	t.Helper()
	found := []fidelityPython{askPython("/usr/bin/python3")}
	if found[0].path == "" {
		t.Fatal("/usr/bin/python3 does not work")
	}
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".pyenv")
	}
	for minor := 9; minor < 20; minor++ {
		name := "python3." + strconv.Itoa(minor)
		candidates, _ := filepath.Glob(filepath.Join(root, "versions", "3."+strconv.Itoa(minor)+".*", "bin", name))
		if onPath, err := exec.LookPath(name); err == nil {
			candidates = append(candidates, onPath)
		}
		for _, c := range candidates {
			if p := askPython(c); p.minor == minor && p.name != found[0].name {
				found = append(found, p)
				break
			}
		}
	}
	// Backends give programs an environment, which finds its modules in another way.
	venv := filepath.Join(openRoot(t), "venv")
	if out, err := exec.Command(found[0].path, "-m", "venv", "--without-pip", "--symlinks", venv).CombinedOutput(); err != nil { //nolint:gosec // a test's own
		t.Fatalf("venv: %v\n%s", err, out)
	}
	p := found[0]
	p.name, p.path, p.reach = "venv", filepath.Join(venv, "bin", "python"), []string{venv}
	return append(found, p)
}

// askPython asks an interpreter for its version. Its path is empty if it does not work.
func askPython(path string) fidelityPython {
	out, err := exec.Command(path, "-c", "import sys; print(sys.executable, *sys.version_info[:3], sys.implementation.name)").Output() //nolint:gosec // a test's own
	f := strings.Fields(string(out))
	if err != nil || len(f) != 5 {
		return fidelityPython{}
	}
	minor, _ := strconv.Atoi(f[2])
	cmd := exec.Command(path, "-c", "")
	if isRoot() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(testUID), Gid: uint32(testUID)}} //nolint:gosec // positive
	}
	return fidelityPython{name: strings.Join(append(f[4:], f[1:4]...), "."), path: f[0], minor: minor, forAll: cmd.Run() == nil}
}

// runnerWay runs scripts as backends do.
func runnerWay(t *testing.T, cfg Config, network bool) fidelityWay {
	r := startBoxed(t, cfg)
	work := regexp.MustCompile(regexp.QuoteMeta(cfg.WorkRoot) + "/[0-9a-f]{8}")
	if cfg.Box {
		work = regexp.MustCompile("/work")
	}
	var forked, executed []string
	t.Cleanup(func() {
		t.Logf("the runner has forked %d scripts, and executed %d:\n%s", len(forked), len(executed), strings.Join(executed, "\n"))
	})
	return fidelityWay{"runner", func(t *testing.T, python string, s *fidelityScript) outcome {
		in := RunInput{Workspace: s.workspace(t).reader(t)}
		if s.stdin != nil {
			in.Stdin = strings.NewReader(*s.stdin)
		}
		start := s.start(python)
		start.Fork, start.Network = "fidelity", network
		res, rec := r.run(t, start, in)
		got := outcome{end: describe(res)}
		select {
		case started := <-rec.started:
			got.how = started.Start
		default: // it did not start
			got.end += fmt.Sprintf(" %+v", res.Failure)
		}
		if got.how == executor.StartFork {
			forked = append(forked, s.name)
		} else {
			executed = append(executed, s.name)
		}
		got.stdout, got.stderr, got.files = rec.stdout(), rec.stderr(), map[string]string{}
		seen := got.stdout + got.stderr
		for _, h := range rec.headers {
			got.add(h.Name, fs.FileMode(h.Mode), rec.files[h.Name]) //nolint:gosec // a mode
			seen += "/" + h.Name + rec.files[h.Name]
		}
		folder, temp := work.FindString(seen), "/tmp"
		if !cfg.Tmpfs {
			temp = folder + "t"
		}
		return got.without(cfg, folder, temp)
	}}
}

func (o *outcome) add(name string, mode fs.FileMode, data string) {
	if strings.HasSuffix(name, ".pyc") {
		data = ""
	}
	o.files[name] = mode.Perm().String() + "\n" + data
}

var address = regexp.MustCompile(`\b0x[0-9a-f]{8,}\b`)

// without replaces what is new in each run: the folders, and addresses of objects.
func (o outcome) without(cfg Config, work, temp string) outcome {
	clean := func(text string) string {
		for _, path := range cfg.Reach { // may lie below the folder for temporary files
			text = strings.ReplaceAll(text, path, "ENVIRONMENT")
		}
		if work != "" {
			text = strings.ReplaceAll(text, work, "WORK")
		}
		if temp != "t" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "WORKt", "TEMP"), temp, "TEMP")
		}
		return address.ReplaceAllString(text, "0xADDRESS")
	}
	files := map[string]string{}
	for name, text := range o.files {
		files[strings.TrimPrefix(clean("/"+name), "/")] = clean(text)
	}
	o.stdout, o.stderr, o.files = clean(o.stdout), clean(o.stderr), files
	return o
}

// plainWay runs scripts by the interpreter itself, as the same user and in a folder whose path is as long as a runner's.
func plainWay(cfg Config) fidelityWay {
	return fidelityWay{"python", func(t *testing.T, python string, s *fidelityScript) outcome {
		t.Helper()
		work := filepath.Join(cfg.WorkRoot, fmt.Sprintf("%08x", time.Now().UnixNano()&0xffffffff))
		start := s.start(python)
		env, err := sandbox.Environment(start, &sandbox.Folder{Path: work, Temp: work + "t"})
		must(t, err)
		s.unpack(t, cfg, work)
		pipes, err := sandbox.MakePipes(cfg, start.Stdin)
		must(t, err)
		defer pipes.Close()
		argv := append(start.Interpreter, argumentOf(s.entry))
		attr := &os.ProcAttr{Dir: work, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
		if cfg.UID != 0 {
			attr.Sys.Credential = &syscall.Credential{Uid: uint32(cfg.UID), Gid: uint32(cfg.GID)} //nolint:gosec // positive
		}
		for _, fd := range pipes.Theirs {
			attr.Files = append(attr.Files, os.NewFile(uintptr(fd), "")) //nolint:gosec // a descriptor
		}
		pipes.Theirs = nil // the files close them
		p, err := os.StartProcess(python, append(argv, s.args...), attr)
		for _, f := range attr.Files {
			must(t, f.Close())
		}
		must(t, err)
		stop := context.AfterFunc(awaittest.Context(t), func() { _ = unix.Kill(-p.Pid, unix.SIGKILL) })
		got := outcome{files: map[string]string{}, how: executor.StartExec}
		got.stdout, got.stderr = exchange(pipes, s.stdin)
		state, err := p.Wait()
		must(t, err)
		stop()
		got.end = describe(resultOf(state.Sys().(syscall.WaitStatus)))
		got.addFolder(t, work)
		return got.without(cfg, work, work+"t")
	}}
}

// argumentOf is the entrypoint as the runner gives it to an interpreter.
func argumentOf(entry string) string {
	if entry = filepath.Clean(entry); entry[0] == '-' {
		return "./" + entry
	}
	return entry
}

// exchange gives a program its input and returns its outputs.
func exchange(pipes *sandbox.Pipes, stdin *string) (stdout, stderr string) {
	var all sync.WaitGroup
	read := func(f *os.File, to *string) {
		all.Go(func() {
			data, _ := io.ReadAll(f)
			*to = string(data)
		})
	}
	read(pipes.Stdout, &stdout)
	read(pipes.Stderr, &stderr)
	if stdin != nil {
		_, _ = io.WriteString(pipes.Stdin, *stdin) // it need not read it
		_ = pipes.Stdin.Close()
	}
	all.Wait()
	return stdout, stderr
}

func resultOf(ws syscall.WaitStatus) executor.Result {
	res := executor.Result{Status: executor.StatusFailed}
	if ws.Signaled() {
		res.Signal = unix.SignalName(ws.Signal())
		return res
	}
	code := ws.ExitStatus()
	if res.ExitCode = &code; code == 0 {
		res.Status = executor.StatusSucceeded
	}
	return res
}

// unpack makes the folders of a script. Files are as old as in its archive.
func (s *fidelityScript) unpack(t *testing.T, cfg protocol.Config, work string) {
	t.Helper()
	for _, d := range []string{work, work + "t"} {
		must(t, os.Mkdir(d, 0o700))
		t.Cleanup(func() { _ = os.RemoveAll(d) })
	}
	for _, e := range s.workspace(t) {
		path := filepath.Join(work, e.h.Name)
		if e.h.FileInfo().IsDir() {
			must(t, os.Mkdir(path, 0o755)) //nolint:gosec // as in the archive
			continue
		}
		must(t, os.WriteFile(path, []byte(e.data), 0o644)) //nolint:gosec // as in the archive
		must(t, os.Chtimes(path, e.h.ModTime, e.h.ModTime))
	}
	if cfg.UID == 0 {
		return
	}
	for _, d := range []string{work, work + "t"} {
		must(t, filepath.WalkDir(d, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, cfg.UID, cfg.GID))
		}))
	}
}
