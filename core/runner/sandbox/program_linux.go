package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Program is what to execute.
type Program struct {
	Path string // the file
	Argv []string
	Env  []string
	Dir  string
	// Notice is written to stderr ahead of the program's own output.
	Notice string
}

// Failure is an executor.Failure as an error.
type Failure struct{ executor.Failure }

func (f *Failure) Error() string { return f.Message }

func Failed(code executor.Code, phase executor.Phase, format string, args ...any) error {
	return &Failure{executor.Failure{Code: code, Phase: phase, Message: fmt.Sprintf(format, args...)}}
}

func Invalid(format string, args ...any) error {
	return Failed(executor.Invalid, executor.PhasePrepare, format, args...)
}

// InvalidField is Invalid for a field of the Spec.
func InvalidField(field, format string, args ...any) error {
	return &Failure{executor.Failure{
		Code: executor.Invalid, Phase: executor.PhasePrepare, Field: field, Message: field + ": " + fmt.Sprintf(format, args...),
	}}
}

// Environment returns all environment variables of a program.
func Environment(start protocol.Start, work *Folder) ([]string, error) {
	env := map[string]string{
		"PATH":             start.Path,
		"HOME":             work.Path,
		"TMPDIR":           work.Temp,
		"LANG":             "C.UTF-8",
		"PYTHONUNBUFFERED": "1",
	}
	for _, c := range start.Caches {
		if !work.shared {
			env[c.Variable] = work.cacheFolder(c)
		}
	}
	maps.Copy(env, start.Env)
	if env["PYTHONUNBUFFERED"] == "" {
		delete(env, "PYTHONUNBUFFERED")
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(env[name], 0) {
			return nil, Invalid("env: %q must be a variable's name, without = and zero bytes in name or value", name)
		}
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// Resolve finds what Start runs in the work folder: its command, its code, or the entrypoint.
func Resolve(start protocol.Start, work *Folder, cfg protocol.Config, python archive.PythonFiles) (*Program, error) {
	p := &Program{Dir: work.Path}
	if start.Directory != "" {
		p.Dir = start.Directory
		if work.view() != nil && filepath.Clean(p.Dir) == workPath {
			return nil, InvalidField("host_directory", "must not be %s, which is the work folder in this sandbox", workPath)
		}
		if work.view() == nil {
			if err := checkDirectory(p.Dir); err != nil {
				return nil, err
			}
		}
		if st, err := work.Stat(p.Dir); err != nil || !st.IsDir() {
			return nil, InvalidField("host_directory", "must be a folder that exists (got %q)", start.Directory)
		}
	}
	var err error
	if p.Env, err = Environment(start, work); err != nil {
		return nil, err
	}
	if len(start.Command) > 0 {
		p.Argv = slices.Concat(start.Command, start.Args)
	} else {
		if len(start.Interpreter) == 0 {
			return nil, Failed(executor.Internal, executor.PhasePrepare, "the start has neither a command nor an interpreter")
		}
		entry, chosen, err := entrypoint(start, work, p.Dir, cfg, python)
		if err != nil {
			return nil, err
		}
		if chosen {
			p.Notice = executor.ChosenEntrypoint(python.First)
		}
		p.Argv = slices.Concat(start.Interpreter, []string{entry}, start.Args)
	}
	for _, arg := range p.Argv {
		if strings.ContainsRune(arg, 0) {
			return nil, Invalid("args: must not contain a zero byte (got %q)", arg)
		}
	}
	p.Path, err = work.LookUp(p.Argv[0], p.Dir, p.Env)
	return p, err
}

// MainFile is the file in the work folder that Code is written to, and the first choice of an entrypoint.
const MainFile = "main.py"

// entrypoint returns the file to run as the interpreter's argument, relative to the program's folder, so that sys.argv[0] is
// what the user wrote. chosen reports whether it was chosen among several .py files.
func entrypoint(start protocol.Start, work *Folder, dir string, cfg protocol.Config, python archive.PythonFiles) (entry string, chosen bool, err error) {
	if start.Code != "" {
		if err := writeCode(work, cfg, start.Code); err != nil {
			return "", false, err
		}
		if start.Directory != "" {
			return filepath.Join(work.Path, MainFile), false, nil
		}
		return MainFile, false, nil
	}
	root, err := os.OpenRoot(work.view().at(dir))
	if err != nil {
		return "", false, Invalid("host_directory: %v", err)
	}
	defer root.Close() //nolint:errcheck // read only
	if start.Entrypoint != "" {
		entry, err = namedEntrypoint(root, start.Entrypoint)
		return entry, false, err
	}
	for i, name := range []string{MainFile, "__main__.py", python.First} {
		if name == "" {
			continue
		}
		if st, err := root.Stat(name); err == nil && st.Mode().IsRegular() {
			return argument(name), i == 2 && python.Other != "", nil
		}
	}
	return "", false, Invalid("entrypoint: must be given, because there is no main.py, no __main__.py and no other .py file")
}

func namedEntrypoint(root *os.Root, name string) (string, error) {
	clean := path.Clean(name)
	if path.IsAbs(name) || archive.Leaves(clean) || strings.ContainsRune(name, 0) {
		return "", InvalidField("entrypoint", "must stay inside the work folder (got %q)", name)
	}
	st, err := root.Stat(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", InvalidField("entrypoint", "%q does not exist", name)
	case err != nil:
		return "", InvalidField("entrypoint", "%q cannot be used: %v", name, err)
	case !st.Mode().IsRegular():
		return "", InvalidField("entrypoint", "must be a regular file (got %q)", name)
	}
	return argument(clean), nil
}

// argument returns name so that an interpreter does not take it for an option.
func argument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "./" + name
	}
	return name
}

func writeCode(work *Folder, cfg protocol.Config, code string) error {
	fd, err := unix.Openat(work.FD(), MainFile, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return InvalidField("code", "must not come with a workspace that has a main.py")
	}
	if err != nil {
		return fmt.Errorf("write code: %w", err)
	}
	f := os.NewFile(uintptr(fd), MainFile) //nolint:gosec // a descriptor
	_, err = f.WriteString(declared(code))
	if cfg.UID != 0 {
		err = errors.Join(err, f.Chown(cfg.UID, cfg.GID))
	}
	if err = errors.Join(err, f.Close()); errors.Is(err, unix.ENOSPC) {
		return InvalidField("code", "must fit into disk_mb")
	}
	return err
}

// LookUp finds the file of argv[0]: relative to dir if it has a slash, else on the program's own PATH.
func (f *Folder) LookUp(name, dir string, env []string) (string, error) {
	if name == "" {
		return "", Failed(executor.Invalid, executor.PhaseStart, "command: must begin with a program's name")
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	var found error
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, place := range filepath.SplitList(list) {
			if !filepath.IsAbs(place) {
				place = filepath.Join(dir, place)
			}
			file := filepath.Join(place, name)
			st, err := f.Stat(file)
			if err != nil || st.IsDir() {
				continue
			}
			if st.Mode()&0o111 != 0 {
				return file, nil
			}
			found = Failed(executor.Invalid, executor.PhaseStart, "%s: permission denied", name)
		}
	}
	if found != nil {
		return "", found
	}
	return "", Failed(executor.NotFound, executor.PhaseStart, "%s: not found on PATH", name)
}

// StartFailure turns an error of execve into a Failure. Whether the file exists tells a missing program from a missing
// interpreter.
func (f *Folder) StartFailure(p *Program, uid int, err error) error {
	name := p.Argv[0]
	file := p.Path
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.Dir, file)
	}
	_, statErr := f.Stat(file)
	switch {
	case errors.Is(err, syscall.ENOENT) && statErr != nil:
		return Failed(executor.NotFound, executor.PhaseStart, "%s: not found", name)
	case errors.Is(err, syscall.ENOENT):
		return Failed(executor.Invalid, executor.PhaseStart, "%s: its interpreter or loader does not exist", name)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return Failed(executor.Invalid, executor.PhaseStart, "%s: permission denied (uid %d, folder %s)", name, uid, p.Dir)
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.E2BIG),
		errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.ELIBBAD), errors.Is(err, syscall.EINVAL):
		return Failed(executor.Invalid, executor.PhaseStart, "%s: cannot be executed: %v", name, err)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return Failed(executor.Exhausted, executor.PhaseStart, "%s: %v", name, err)
	default:
		return Failed(executor.Internal, executor.PhaseStart, "%s: %v", name, err)
	}
}
