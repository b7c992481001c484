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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/requirements"
)

// oldestUVMinor is the oldest minor version 0.x of uv with every option and variable that the backend uses.
const oldestUVMinor = 5

// uvTool finds uv when the first environment must be built, and keeps the result.
type uvTool struct {
	dir    string // cache_dir/tools
	places places
	index  index
	pin    pin
	// pythons returns interpreters that may have a uv package, or a pip that can fetch uv.
	pythons func(context.Context) []string
	// enclose makes the enclosure of a fetch, which fills the folder temp.
	enclose func(ctx context.Context, temp string) (enclosure, error)
	log     *slog.Logger

	// turn is a lock that guards found. It is held while it has an element, so that ctx can end a wait for it.
	turn  chan struct{}
	found uvProgram
}

// uvProgram is a uv that has printed its version.
type uvProgram struct{ path, version string }

func newUVTool(dir string, p places, x index, pythons func(context.Context) []string, log *slog.Logger) *uvTool {
	return &uvTool{dir: dir, places: p, index: x, pin: pinnedUV(), pythons: pythons, log: log, turn: make(chan struct{}, 1)}
}

// find returns a usable uv. It calls notify before it fetches one. Codes: unavailable (uv is missing and could not be fetched; the
// message has the reason and the remedy).
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

// look searches for uv without fetching one. It returns an empty program if there is none.
func (u *uvTool) look(ctx context.Context) (uvProgram, error) {
	pythons := u.pythons(ctx)
	for _, file := range u.files(pythons) {
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

// files lists where a uv may be, in order of preference.
func (u *uvTool) files(pythons []string) []string {
	var list []string
	for _, dir := range filepath.SplitList(u.places.path) {
		list = append(list, filepath.Join(dir, "uv"))
	}
	list = append(list, below(u.places.home, ".local/bin/uv"), below(u.places.home, ".cargo/bin/uv"), u.fetched())
	for _, python := range pythons {
		list = append(list, filepath.Join(filepath.Dir(python), "uv"))
	}
	return list
}

func (u *uvTool) fetched() string { return filepath.Join(u.dir, "uv-"+u.pin.version, "bin", "uv") }

var uvVersionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^uv (0\.([0-9]+)\.[0-9]+|[1-9][0-9]*\.[0-9.]+)`) })

// try runs file for its version, if it is an ELF program. It refuses scripts, because a shim depends on the current folder and
// costs a shell each time.
func (u *uvTool) try(ctx context.Context, file string) (uvProgram, bool) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil || !isELF(real) {
		return uvProgram{}, false
	}
	out, err := u.run(ctx, nil, real, "--version")
	version, old := parseUVVersion(out)
	switch {
	case err != nil || version == "":
		u.log.Info("uv skipped: it does not print its version", "path", real)
		return uvProgram{}, false
	case old:
		u.log.Info("uv skipped: too old", "path", real, "version", version)
		return uvProgram{}, false
	}
	return uvProgram{path: real, version: version}, true
}

// parseUVVersion returns the version that a uv has printed, or "". old reports whether the version is older than oldestUVMinor.
func parseUVVersion(out string) (version string, old bool) {
	m := uvVersionForm().FindStringSubmatch(out)
	if m == nil {
		return "", false
	}
	minor, err := strconv.Atoi(m[2])
	return m[1], err == nil && minor < oldestUVMinor
}

// reachable returns the path of a uv that uid may execute with the mechanisms m: program itself, or a copy in u.dir.
func (u *uvTool) reachable(ctx context.Context, program uvProgram, m mechanisms, uid int) (string, error) {
	info, err := os.Stat(program.path)
	if err != nil {
		return "", err
	}
	if uid == 0 || m.readable(program.path, uid) && info.Mode().Perm()&0o001 != 0 {
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
	if err := errors.Join(os.WriteFile(mine, raw, 0o755), os.Chmod(mine, 0o755), os.Chmod(temp, 0o755)); err != nil { //nolint:gosec // any user may execute uv
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

// run runs a tool with the plugin's rights and returns its stdout. The error has the tool's own message from stderr.
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

// complaint returns a tool's message about its failure, without the warnings that pip prints before each retry.
func complaint(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	left := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, "WARNING: Retrying") })
	if len(left) == 0 {
		left = lines[len(lines)-1:]
	}
	return strings.Join(left, "\n")
}

// defaultPath is the PATH of the plugin's own tools, and the end of a program's PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"
