package uvbackend

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// pin names the uv that is fetched where there is none: its version and the SHA-256 of the wheels that may be taken.
type pin struct {
	version string
	hashes  []string
}

func pinnedUV() pin {
	return pin{"0.13.9", []string{
		"d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19", // manylinux_2_17 x86_64
		"2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25", // musllinux_1_1 x86_64
		"5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe", // manylinux_2_17 and musllinux_1_1 aarch64
	}}
}

const (
	fetchTime = 5 * time.Minute
	// oldestUV knows every option and variable that is used here.
	oldestUVMinor = 5
)

// uvTool finds uv, once, when the first environment must be built.
type uvTool struct {
	dir    string // cache_dir/tools
	places places
	index  index
	pin    pin
	// pythons may have a uv package, or a pip that fetches it.
	pythons func(context.Context) []string
	log     *slog.Logger

	// turn is held while one looks; found is guarded by it.
	turn  chan struct{}
	found uvProgram
}

// uvProgram is a uv that answered.
type uvProgram struct{ path, version string }

func newUVTool(dir string, p places, x index, pythons func(context.Context) []string, log *slog.Logger) *uvTool {
	return &uvTool{dir: dir, places: p, index: x, pin: pinnedUV(), pythons: pythons, log: log, turn: make(chan struct{}, 1)}
}

// find returns a usable uv; notify is told when it takes longer. Codes: unavailable (there is none and none could be
// fetched; the message says why and what to do).
func (u *uvTool) find(ctx context.Context, notify func(string)) (uvProgram, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return uvProgram{}, context.Cause(ctx)
	}
	if u.found.path != "" && isFile(u.found.path) {
		return u.found, nil
	}
	program, err := u.look(ctx)
	if err != nil {
		return uvProgram{}, err
	}
	if program.path == "" {
		notify("fetching uv " + u.pin.version)
		if program, err = u.fetch(ctx); err != nil {
			return uvProgram{}, err
		}
	}
	u.log.Info("uv found", "path", program.path, "version", program.version)
	u.found = program
	return program, nil
}

// look searches without fetching; an empty program means that there is none.
func (u *uvTool) look(ctx context.Context) (uvProgram, error) {
	var files []string
	for _, dir := range filepath.SplitList(u.places.path) {
		files = append(files, filepath.Join(dir, "uv"))
	}
	files = append(files, below(u.places.home, ".local/bin/uv"), below(u.places.home, ".cargo/bin/uv"), u.fetched())
	pythons := u.pythons(ctx)
	for _, python := range pythons {
		files = append(files, filepath.Join(filepath.Dir(python), "uv"))
	}
	for _, file := range files {
		if program, ok := u.try(ctx, file); ok {
			return program, nil
		}
	}
	for _, python := range pythons {
		out, err := u.run(ctx, nil, python, "-I", "-c", "import uv; print(uv.find_uv_bin())")
		if err == nil {
			if program, ok := u.try(ctx, strings.TrimSpace(out)); ok {
				return program, nil
			}
		}
	}
	return uvProgram{}, context.Cause(ctx)
}

func (u *uvTool) fetched() string { return filepath.Join(u.dir, "uv-"+u.pin.version, "bin", "uv") }

var uvVersionForm = regexp.MustCompile(`^uv (0\.([0-9]+)\.[0-9]+|[1-9][0-9]*\.[0-9.]+)`)

// try asks file for its version, if it is a program: a shim obeys the current folder and costs a shell each time.
func (u *uvTool) try(ctx context.Context, file string) (uvProgram, bool) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil || !isELF(real) {
		return uvProgram{}, false
	}
	out, err := u.run(ctx, nil, real, "--version")
	m := uvVersionForm.FindStringSubmatch(out)
	if err != nil || m == nil {
		u.log.Info("uv passed over: it does not say its version", "path", real)
		return uvProgram{}, false
	}
	if minor, err := strconv.Atoi(m[2]); err == nil && minor < oldestUVMinor {
		u.log.Info("uv passed over: too old", "path", real, "version", m[1])
		return uvProgram{}, false
	}
	return uvProgram{path: real, version: m[1]}, true
}

// reachable is the path under which uid may execute a uv: its own, or that of a copy in our folder.
func (u *uvTool) reachable(ctx context.Context, program uvProgram, uid int) (string, error) {
	info, err := os.Stat(program.path)
	if err != nil {
		return "", err
	}
	if uid == 0 || readable(program.path, uid) && info.Mode().Perm()&0o001 != 0 {
		return program.path, nil
	}
	dir := filepath.Join(u.dir, fmt.Sprintf("copy-%s-%x-%x", program.version, info.Size(), info.ModTime().UnixNano()))
	path := filepath.Join(dir, "uv")
	if isFile(path) {
		return path, nil
	}
	held, err := lock(ctx, filepath.Join(u.dir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer held.Close()
	if isFile(path) {
		return path, nil
	}
	u.clean()
	temp, err := os.MkdirTemp(u.dir, ".tmp-")
	if err != nil {
		return "", err
	}
	defer func() { _ = removeAll(temp) }()
	raw, err := os.ReadFile(program.path)
	if err != nil {
		return "", err
	}
	mine := filepath.Join(temp, "uv")
	if err := errors.Join(os.WriteFile(mine, raw, 0o755), os.Chmod(mine, 0o755), os.Chmod(temp, 0o755)); err != nil { //nolint:gosec // a public program
		return "", err
	}
	return path, os.Rename(temp, dir)
}

func isELF(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// fetch installs the pinned uv with the pip of some Python, once on this machine: others wait for the lock.
func (u *uvTool) fetch(ctx context.Context) (uvProgram, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("not done within %s", fetchTime))
	defer cancel()
	held, err := lock(ctx, filepath.Join(u.dir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return uvProgram{}, err
	}
	defer held.Close()
	if program, ok := u.try(ctx, u.fetched()); ok {
		return program, nil
	}
	u.clean()
	temp, err := os.MkdirTemp(u.dir, ".tmp-")
	if err != nil {
		return uvProgram{}, err
	}
	defer func() { _ = removeAll(temp) }()
	if err := u.pip(ctx, temp); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return uvProgram{}, &executor.Error{Code: executor.Unavailable, Op: "fetch uv", Err: err, Message: fmt.Sprintf(
			"uv %s, which installs requirements, is not on this machine and could not be fetched: %s. Install uv and put it on PATH, or let the package index be reached (backends.uv.index_url)",
			u.pin.version, requirements.WithoutCredentials(err.Error()))}
	}
	final := filepath.Dir(filepath.Dir(u.fetched()))
	if err := errors.Join(removeAll(final), os.Rename(filepath.Join(temp, "target"), final)); err != nil {
		return uvProgram{}, err
	}
	program, ok := u.try(ctx, u.fetched())
	if !ok {
		return uvProgram{}, executor.Errorf(executor.Unavailable, "uv %s was fetched and does not run on this machine (%s); install uv and put it on PATH", u.pin.version, runtime.GOARCH)
	}
	return program, nil
}

// clean removes what a fetch that was killed left. The lock is held.
func (u *uvTool) clean() {
	for _, dir := range temporary(u.dir) {
		_ = removeAll(dir)
	}
}

// pip puts uv into temp/target. A Python without pip may still have venv, which brings one.
func (u *uvTool) pip(ctx context.Context, temp string) error {
	line := "uv==" + u.pin.version
	for _, h := range u.pin.hashes {
		line += " --hash=sha256:" + h
	}
	list := filepath.Join(temp, "requirements.txt")
	if err := os.WriteFile(list, []byte(line+"\n"), 0o600); err != nil {
		return err
	}
	pythons := u.pythons(ctx)
	if len(pythons) == 0 {
		return errors.New("there is no Python here")
	}
	args := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-warn-script-location",
		"--require-hashes", "--only-binary", ":all:", "--target", filepath.Join(temp, "target"), "-r", list}
	env := append([]string{"PIP_ROOT_USER_ACTION=ignore", "TMPDIR=" + temp}, u.index.pip...)
	for _, python := range pythons {
		if _, err := u.run(ctx, nil, python, "-c", "import pip"); err == nil {
			_, err := u.run(ctx, env, python, args...)
			return err
		}
	}
	venv := filepath.Join(temp, "venv")
	for _, python := range pythons {
		if _, err := u.run(ctx, env, python, "-I", "-m", "venv", venv); err == nil {
			_, err := u.run(ctx, env, filepath.Join(venv, "bin", "python"), args...)
			return err
		}
		_ = removeAll(venv)
	}
	return errors.New("no Python here has pip or venv (on Debian: apt install python3-pip)")
}

// run runs a tool of ours with the plugin's rights; its error holds the end of what it said.
func (u *uvTool) run(ctx context.Context, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + defaultPath, "LANG=C.UTF-8", "HOME=" + u.places.home}, env...)
	cmd.SysProcAttr = childAttr(0)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errs boundedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if said := complaint(errs.String()); said != "" {
			return "", errors.New(requirements.Shorten(said, 2000))
		}
		return "", err
	}
	return out.String(), nil
}

// complaint is what a tool said about its failure, without what pip says each time it tries again.
func complaint(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	left := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, "WARNING: Retrying") })
	if len(left) == 0 {
		left = lines[len(lines)-1:]
	}
	return strings.Join(left, "\n")
}

// defaultPath is the PATH of our own tools, and the end of a program's.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"
