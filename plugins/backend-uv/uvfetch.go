package uvbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// pin names the uv that is fetched if the machine has none: its version and the SHA-256 of the accepted wheels.
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

const fetchTime = 5 * time.Minute

// fetch installs the pinned uv with the pip of some Python. Other processes wait for the lock and then use the same uv.
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
	if err := u.enclosed(ctx, temp); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return uvProgram{}, &executor.Error{Code: executor.Unavailable, Op: "fetch uv", Err: err, Message: fmt.Sprintf(
			"uv %s, which installs requirements, is not on this machine and could not be fetched: %s. Install uv and put it on PATH, or set backends.uv.index_url to an index that can be reached",
			u.pin.version, requirements.WithoutCredentials(err.Error()))}
	}
	final := filepath.Dir(filepath.Dir(u.fetched()))
	if err := errors.Join(removeAll(final), os.Rename(filepath.Join(temp, "target"), final)); err != nil {
		return uvProgram{}, err
	}
	program, ok := u.try(ctx, u.fetched())
	if !ok {
		return uvProgram{}, executor.Errorf(executor.Unavailable, "the fetched uv %s does not run on this machine (%s): install uv and put it on PATH", u.pin.version, runtime.GOARCH)
	}
	return program, nil
}

// clean removes the leftovers of killed fetches. The caller holds the lock.
func (u *uvTool) clean() {
	for _, dir := range temporary(u.dir) {
		_ = removeAll(dir)
	}
}

// enclosed fills temp/target in an enclosure of its own. When it returns nil, all its processes have ended, and target belongs to
// the plugin's user.
func (u *uvTool) enclosed(ctx context.Context, temp string) error {
	line := "uv==" + u.pin.version
	for _, h := range u.pin.hashes {
		line += " --hash=sha256:" + h
	}
	if err := os.WriteFile(filepath.Join(temp, pinName), []byte(line+"\n"), 0o600); err != nil {
		return err
	}
	in, err := u.enclose(ctx, temp)
	if err != nil {
		return err
	}
	err = u.pip(ctx, temp, in.run)
	if err = errors.Join(err, in.close()); err != nil {
		return err
	}
	return own(filepath.Join(temp, "target"))
}

const pinName = "requirements.txt"

// enclosure bounds the programs that fetch uv.
type enclosure struct {
	run enclosedRun
	// close ends the programs. It fails if some do not end.
	close func() error
}

// enclosedRun runs a program. reach lists files and folders that the program uses. The error has the program's own message.
type enclosedRun func(ctx context.Context, env, reach []string, program string, args ...string) error

// pip installs uv to temp/target. If no Python has pip, it uses the pip of a new venv.
func (u *uvTool) pip(ctx context.Context, temp string, run enclosedRun) error {
	pythons := u.pythons(ctx)
	if len(pythons) == 0 {
		return errors.New("this machine has no Python")
	}
	args := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-warn-script-location",
		"--no-cache-dir", "--require-hashes", "--only-binary", ":all:", "--target", filepath.Join(temp, "target"), "-r", filepath.Join(temp, pinName)}
	env := append([]string{"PIP_ROOT_USER_ACTION=ignore"}, u.index.pip...)
	for _, python := range pythons {
		if run(ctx, nil, installation(python), python, "-c", "import pip") == nil {
			return run(ctx, env, installation(python), python, args...)
		}
	}
	venv := filepath.Join(temp, "venv")
	for _, python := range pythons {
		if run(ctx, nil, installation(python), python, "-I", "-m", "venv", venv) == nil {
			return run(ctx, env, installation(python), filepath.Join(venv, "bin", "python"), args...)
		}
		_ = removeAll(venv)
	}
	return cmp.Or(context.Cause(ctx), errors.New("no Python of this machine has pip or venv (on Debian: apt install python3-pip)"))
}

// enclose makes a build slot for a fetch of uv. The build slot has the bounds of a preparation.
func (b *builder) enclose(ctx context.Context, temp string) (enclosure, error) {
	x, err := b.openBuildSlot(ctx, parallelBuilds, temp, true)
	if err != nil {
		return enclosure{}, err
	}
	within := x.reach
	run := func(ctx context.Context, variables, reach []string, program string, args ...string) error {
		x.reach = slices.Concat(within, reach)
		env, err := x.lend(variables)
		if err != nil {
			return err
		}
		env["LANG"], env["HOME"], env["TMPDIR"] = "C.UTF-8", filepath.Join(temp, "home"), filepath.Join(temp, "tmp")
		var said boundedBuffer
		result, failure, err := x.run(ctx, len(variables) > 0, env, &said, append([]string{program}, args...)...)
		switch {
		case err != nil:
			return err
		case failure != nil:
			return errors.New(strings.TrimPrefix(failure.Message, failure.Field+": "))
		case result.Status == executor.StatusSucceeded:
			return nil
		case result.Status == executor.StatusOutOfMemory:
			return fmt.Errorf("pip needs more memory than backends.%s.prepare_memory_bytes (%d)", b.name, b.config.PrepareMemoryBytes)
		}
		return errors.New(cmp.Or(requirements.Shorten(complaint(said.String()), 2000), string(result.Status)))
	}
	return enclosure{run: run, close: func() error {
		if !x.close() {
			return errors.New("processes of pip do not end")
		}
		return nil
	}}, nil
}
