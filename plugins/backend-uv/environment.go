package uvbackend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// buildTime bounds the building of one environment, a fetch of uv included.
const buildTime = 20 * time.Minute

// builder makes environments with uv.
type builder struct {
	cache       *cache
	tool        *uvTool
	index       index
	allowBuilds bool
	log         *slog.Logger
}

// want is one environment that is asked for.
type want struct {
	interpreter  interpreter
	requirements []string // normalised
}

// key is the identity of w's environment: everything that may change what is in it.
func (b *builder) key(w want) string {
	parts := []string{"1", w.interpreter.key(), b.index.key, fmt.Sprint(b.allowBuilds)}
	sum := sha256.Sum256([]byte(strings.Join(append(parts, w.requirements...), "\x00")))
	return hex.EncodeToString(sum[:])
}

// build makes the environment of key unless it is there by now. A Failure says that the requirements are at fault, or
// the index is out of reach; an error, that we are. notify is told what happens.
func (b *builder) build(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, buildTime, errBuildTime)
	defer cancel()
	failure, err := b.locked(ctx, key, w, notify)
	if errors.Is(err, errBuildTime) {
		return unavailable(err.Error()), nil
	}
	return failure, err
}

var errBuildTime = fmt.Errorf("the environment was not built within %s", buildTime)

// locked is build with the key locked.
func (b *builder) locked(ctx context.Context, key string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	held, err := lock(ctx, b.cache.lockPath(key), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if _, err := b.cache.check(key); err == nil {
		return nil, nil // another process was quicker
	}
	b.cache.misses.Add(1)
	say := func(message string) { notify(executor.Progress{Phase: executor.PhasePrepare, Message: message}) }
	program, err := b.tool.find(ctx, say)
	if err != nil {
		if executor.CodeOf(err) == executor.Unavailable && ctx.Err() == nil {
			return unavailable(err.Error()), nil
		}
		return nil, err
	}
	wheels, err := lock(ctx, b.cache.wheel+".lock", unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer wheels.Close()
	temp, err := os.MkdirTemp(b.cache.dir, ".tmp-"+key+"-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = removeAll(temp) }()
	say(fmt.Sprintf("installing %d requirements for Python %s", len(w.requirements), w.interpreter.Version))
	failure, err := b.install(ctx, program, temp, w, notify)
	if failure != nil || err != nil {
		return failure, err
	}
	dir := filepath.Join(temp, "env")
	packages, err := resolved(dir)
	if err != nil {
		return nil, err
	}
	b.compile(ctx, w.interpreter, dir)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	os.Remove(filepath.Join(dir, ".lock")) // uv's own, writable by all
	return nil, b.cache.commit(key, dir, marker{Python: w.interpreter.Version, Requirements: packages})
}

// install runs uv twice in temp: an empty environment, then the requirements. uv reads no configuration, downloads no
// interpreter, builds nothing unless told to, and shares no file with its cache.
func (b *builder) install(ctx context.Context, program uvProgram, temp string, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	for _, dir := range []string{"home", "tmp"} {
		if err := os.Mkdir(filepath.Join(temp, dir), 0o700); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(temp, "requirements.txt")
	if err := os.WriteFile(list, []byte(strings.Join(w.requirements, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	dir := filepath.Join(temp, "env")
	run := func(args ...string) (string, error) { return b.uv(ctx, program.path, temp, notify, args...) }
	if said, err := run("venv", "--no-project", "--no-config", "--relocatable", "--python", w.interpreter.Path, dir); err != nil {
		return nil, fmt.Errorf("make an environment for %s: %w: %s", w.interpreter.Path, err, said)
	}
	args := []string{"pip", "install", "--no-config", "--python", filepath.Join(dir, "bin", "python"), "--prerelease", "if-necessary-or-explicit", "-r", list}
	if !b.allowBuilds {
		args = append(args, "--only-binary", ":all:")
	}
	said, err := run(args...)
	if err == nil {
		return nil, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return nil, fmt.Errorf("run uv: %w", err)
	}
	return requirements.Classify(clean(said, temp)), nil
}

// uv runs uv in an environment of its own and returns what it said.
func (b *builder) uv(ctx context.Context, program, temp string, notify func(executor.Progress), args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(temp, "tmp")
	cmd.Env = append([]string{
		"PATH=" + defaultPath, "LANG=C.UTF-8", "HOME=" + filepath.Join(temp, "home"), "TMPDIR=" + filepath.Join(temp, "tmp"),
		"UV_CACHE_DIR=" + b.cache.wheel, "UV_LINK_MODE=copy", "UV_NO_CONFIG=1", "UV_NO_ENV_FILE=1", "UV_PYTHON_DOWNLOADS=never",
		"UV_NO_PROGRESS=1", "NO_COLOR=1",
	}, b.index.uv...)
	cmd.SysProcAttr = childAttr(0)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	said := &progressLines{notify: notify}
	cmd.Stdout, cmd.Stderr = said, said // one writer for both: exec then copies from one pipe
	err := cmd.Run()
	return said.String(), err
}

// progressLines keeps what uv says, bounded, and turns each line into progress.
type progressLines struct {
	boundedBuffer
	notify func(executor.Progress)
	rest   string
	total  int64
}

var resolvedLine = regexp.MustCompile(`^Resolved (\d+) packages? `)

func (p *progressLines) Write(b []byte) (int, error) {
	_, _ = p.boundedBuffer.Write(b)
	text := p.rest + string(b)
	for {
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			break
		}
		text = rest
		p.line(strings.TrimSpace(line))
	}
	p.rest = requirements.Shorten(text, 1024)
	return len(b), nil
}

func (p *progressLines) line(line string) {
	if m := resolvedLine.FindStringSubmatch(line); m != nil {
		_, _ = fmt.Sscan(m[1], &p.total)
	}
	for _, start := range []string{"Resolved", "Downloading", "Downloaded", "Prepared", "Installed", "Building", "Built"} {
		if !strings.HasPrefix(line, start) {
			continue
		}
		e := executor.Progress{Phase: executor.PhasePrepare, Message: requirements.Shorten(line, 200)}
		if p.total > 0 {
			e.Total, e.Unit = p.total, "packages"
			if start == "Installed" {
				e.Done = p.total
			}
		}
		p.notify(e)
	}
}

// clean takes our own paths and the index's credentials out of what uv said.
func clean(said, temp string) string {
	var lines []string
	for _, line := range strings.Split(requirements.WithoutCredentials(strings.ReplaceAll(said, temp+"/", "")), "\n") {
		line = strings.TrimRight(line, " \t\r")
		if line != "" && !strings.HasPrefix(line, "Using Python ") && !strings.HasPrefix(line, "Resolved ") && !strings.HasPrefix(line, "warning: ") {
			lines = append(lines, line)
		}
	}
	return requirements.Shorten(strings.Join(lines, "\n"), 8<<10)
}

func unavailable(message string) *executor.Failure {
	return &executor.Failure{Code: executor.Unavailable, Phase: executor.PhasePrepare, Message: message}
}

// compile writes bytecode, which programs may not. It runs the interpreter without site-packages: that compiles what
// wheels brought and executes none of it (.pth files, sitecustomize). What cannot be compiled stays as it is.
func (b *builder) compile(ctx context.Context, i interpreter, dir string) {
	packages, err := sitePackages(dir)
	if err != nil {
		return
	}
	cmd := exec.CommandContext(ctx, i.Path, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", packages)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + defaultPath, "LANG=C.UTF-8"}
	cmd.SysProcAttr = childAttr(0)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		b.log.Debug("not everything was compiled", "error", err)
	}
}

// resolved lists what is installed, "name==version", sorted, from the packages' own metadata.
func resolved(dir string) ([]string, error) {
	packages, err := sitePackages(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(packages)
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".dist-info")
		if !ok {
			continue
		}
		name, version := metadata(filepath.Join(packages, e.Name(), "METADATA"))
		if name == "" || version == "" {
			name, version, _ = strings.Cut(base, "-")
		}
		list = append(list, requirements.Name(name)+"=="+version)
	}
	slices.Sort(list)
	return list, nil
}

// metadata reads name and version from the head of a METADATA file.
func metadata(path string) (name, version string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	head := make([]byte, 16<<10)
	n, _ := f.Read(head) // what cannot be read has no name
	for _, line := range strings.Split(string(head[:n]), "\n") {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r"), ":")
		switch {
		case line == "" || line == "\r":
			return name, version
		case ok && strings.EqualFold(key, "Name") && name == "":
			name = strings.TrimSpace(value)
		case ok && strings.EqualFold(key, "Version") && version == "":
			version = strings.TrimSpace(value)
		}
	}
	return name, version
}
