package uvbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// newestDownload is the newest Python 3 minor version that is offered for download. An older uv may not know it.
const newestDownload = 15

// The variables of the host that name another place of the interpreters that uv downloads, and another list of them.
const (
	pythonMirror = "UV_PYTHON_INSTALL_MIRROR"
	pythonList   = "UV_PYTHON_DOWNLOADS_JSON_URL"
)

// pythonsDir holds downloaded interpreters. Each lies in a folder of its own, as uv has installed it: uv writes the path into its files. A link
// with the name of the minor version leads to it once it is complete.
func pythonsDir(c Config) string { return filepath.Join(c.CacheDir, "pythons") }

// pythonLinks matches the links in pythonsDir.
const pythonLinks = "3.[0-9]*"

// downloads lists the minor versions that are installed when they are asked for, newest first.
func (b *Backend) downloads(inv inventory) []string {
	allowed := b.personal
	if set := b.config.PythonDownloads; set != nil {
		allowed = *set
	}
	if !allowed {
		return nil
	}
	var list []string
	for minor := newestDownload; minor >= oldestMinor; minor-- {
		version := fmt.Sprintf("3.%d", minor)
		if _, ok := inv.find(version); !ok {
			list = append(list, version)
		}
	}
	return list
}

// downloadable returns the minor version that spec asks for if this machine does not have it and it may be downloaded, else "".
func (b *Backend) downloadable(spec executor.Spec) string {
	minor := spec.PythonVersion
	if spec.Image != "" {
		of, ok := imageVersion(spec.Image, b.config.ImageMap)
		if !ok || minor != "" && minor != of {
			return ""
		}
		minor = of
	}
	if minor == "" || !slices.Contains(b.downloads(*b.inventory.Load()), minor) {
		return ""
	}
	return minor
}

// download installs the Python of a minor version that spec asks for. Callers that want the same version share one installation.
func (b *Backend) download(ctx context.Context, spec executor.Spec, minor string, notify func(executor.Progress)) (i interpreter, failure *executor.Failure, err error) {
	failure, err = b.builder.Do(ctx, "python "+minor, notify, func(ctx context.Context, notify func(executor.Progress)) (*executor.Failure, error) {
		failure, err := b.builder.installPython(ctx, minor, notify)
		if failure == nil && err == nil {
			b.search(ctx)
		}
		return failure, err
	})
	inv := *b.inventory.Load()
	if failure == nil && err == nil {
		if i, err = choose(spec, b.config.ImageMap, inv); err != nil {
			failure, err = unavailable("uv has installed it, but programs cannot use it"+inv.hint(minor)), nil
		}
	}
	if failure != nil {
		told := *failure
		if told.Field = "python_version"; spec.PythonVersion == "" {
			told.Field = "docker_image"
		}
		told.Message = fmt.Sprintf("Python %s is not on this machine, which has %s: %s", minor, cmp.Or(strings.Join(inv.minors(), ", "), "none"), failure.Message)
		failure = &told
	}
	return i, failure, err
}

// installPython installs the newest Python of a minor version with uv, unless another process has done so. It has the bounds of a
// preparation.
func (b *builder) installPython(ctx context.Context, minor string, notify func(executor.Progress)) (*executor.Failure, error) {
	late := fmt.Errorf("it was not installed within backends.%s.prepare_seconds (%d)", b.name, b.config.PrepareSeconds)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(b.config.PrepareSeconds)*time.Second, late)
	defer cancel()
	failure, err := b.installPythonOnce(ctx, minor, notify)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		return unavailable(late.Error()), nil
	}
	return failure, err
}

func (b *builder) installPythonOnce(ctx context.Context, minor string, notify func(executor.Progress)) (*executor.Failure, error) {
	dir := pythonsDir(b.config)
	link := filepath.Join(dir, minor)
	held, err := lock(ctx, filepath.Join(dir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if isFile(filepath.Join(link, "bin", "python"+minor)) {
		return nil, nil
	}
	sweepPythons(dir)
	say := func(message string) { notify(executor.Progress{Phase: executor.PhasePrepare, Message: message}) }
	program, err := b.tool.find(ctx, say)
	if err != nil {
		if executor.CodeOf(err) == executor.Unavailable && ctx.Err() == nil {
			return unavailable(err.Error()), nil
		}
		return nil, err
	}
	home, err := os.MkdirTemp(dir, "of-"+minor+"-")
	if err != nil {
		return nil, err
	}
	say("installing Python " + minor)
	failure, err := b.fetchPython(ctx, home, program, minor)
	if failure == nil && err == nil {
		err = linkPython(home, link)
	}
	if failure != nil || err != nil {
		err = errors.Join(err, removeAll(home))
	}
	return failure, err
}

// sweepPythons removes what killed installations have left. The caller holds the lock.
func sweepPythons(dir string) {
	inUse := map[string]bool{}
	links, _ := filepath.Glob(filepath.Join(dir, pythonLinks)) // the pattern is valid
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			first, _, _ := strings.Cut(target, "/")
			inUse[first] = true
		}
	}
	entries, _ := os.ReadDir(dir) // without the folder there is nothing to remove
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "of-") && !inUse[e.Name()] {
			_ = removeAll(filepath.Join(dir, e.Name()))
		}
	}
}

// fetchPython runs uv in a build slot, which fills home/python. When it returns, no process of the slot is left.
func (b *builder) fetchPython(ctx context.Context, home string, program uvProgram, minor string) (failure *executor.Failure, err error) {
	var turn int
	select {
	case turn = <-b.turns:
		defer func() { b.turns <- turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	x, err := b.openBuildSlot(ctx, turn, home, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !x.close() && err == nil {
			failure, err = nil, executor.Errorf(executor.Internal, "processes of the installation of Python do not end")
		}
	}()
	if program.path, err = b.tool.reachable(ctx, program, x.how, x.uid()); err != nil {
		return nil, err
	}
	x.reach = append(x.reach, program.path)
	env, err := b.environ(x)
	if err != nil {
		return nil, err
	}
	maps.Copy(env, map[string]string{
		"UV_PYTHON_DOWNLOADS": "manual", "UV_PYTHON_INSTALL_DIR": filepath.Join(home, "python"), "UV_PYTHON_BIN_DIR": filepath.Join(home, "tmp"),
	})
	for _, name := range []string{pythonMirror, pythonList} {
		if value := b.tool.places.env(name); value != "" {
			env[name] = value
		}
	}
	var said boundedBuffer
	result, failure, err := x.run(ctx, true, env, &said, program.path, "python", "install", minor)
	switch {
	case err != nil:
		return nil, err
	case failure != nil:
		failure.Message = strings.TrimPrefix(failure.Message, failure.Field+": ")
		return failure, nil
	case result.Status == executor.StatusSucceeded:
		return nil, nil
	case result.Status == executor.StatusOutOfMemory:
		return b.tooMuchMemory("installing it", ""), nil
	}
	message := requirements.WithoutCredentials(cmp.Or(requirements.Shorten(complaint(said.String()), 2000), string(result.Status)))
	if trouble := x.proxy.Trouble(); trouble != nil {
		message += "\n" + requirements.WithoutCredentials(trouble.Error())
	}
	return unavailable("uv could not install it: " + message), nil
}

// linkPython gives home, in which uv has installed one interpreter, to the plugin's user, and makes the link to it.
func linkPython(home, link string) error {
	if err := own(home); err != nil {
		return fmt.Errorf("take over a Python: %w", err)
	}
	var err error
	for _, name := range []string{"home", "tmp", "packages"} {
		err = errors.Join(err, removeAll(filepath.Join(home, name)))
	}
	found, _ := filepath.Glob(filepath.Join(home, "python", "*", "bin", "python"+filepath.Base(link))) // the pattern is valid
	found = slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Lstat(filepath.Dir(filepath.Dir(path)))
		return err != nil || !info.IsDir() // uv makes links to its folders
	})
	if len(found) != 1 {
		return errors.Join(err, executor.Errorf(executor.Internal, "uv has installed %d interpreters in %s", len(found), home))
	}
	target, relErr := filepath.Rel(filepath.Dir(link), filepath.Dir(filepath.Dir(found[0])))
	fresh := home + ".link"
	if err = errors.Join(err, relErr, os.Chmod(home, 0o755)); err != nil { //nolint:gosec // programs read it
		return err
	}
	if err = os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, link) // the link is there when all else is
}
