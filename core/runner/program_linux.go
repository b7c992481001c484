package runner

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
)

// program is what is to be executed.
type program struct {
	path string // the file
	argv []string
	env  []string
	dir  string
}

// failure is a Failure on its way up as an error.
type failure struct{ executor.Failure }

func (f *failure) Error() string { return f.Message }

func failed(code executor.Code, phase executor.Phase, format string, args ...any) error {
	return &failure{executor.Failure{Code: code, Phase: phase, Message: fmt.Sprintf(format, args...)}}
}

func invalid(format string, args ...any) error {
	return failed(executor.Invalid, executor.PhasePrepare, format, args...)
}

// invalidField is invalid, of a field of the Spec by its name.
func invalidField(field, format string, args ...any) error {
	return &failure{executor.Failure{
		Code: executor.Invalid, Phase: executor.PhasePrepare, Field: field, Message: field + ": " + fmt.Sprintf(format, args...),
	}}
}

// environment builds what a program sees, and nothing else.
func environment(start Start, work *folder) ([]string, error) {
	env := map[string]string{
		"PATH":             start.Path,
		"HOME":             work.path,
		"TMPDIR":           work.temp,
		"LANG":             "C.UTF-8",
		"PYTHONUNBUFFERED": "1",
	}
	maps.Copy(env, start.Env)
	if env["PYTHONUNBUFFERED"] == "" {
		delete(env, "PYTHONUNBUFFERED")
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(env[name], 0) {
			return nil, invalid("env: %q cannot be a variable", name)
		}
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// resolve decides what Start runs in the work folder: its command, its code, or the entrypoint that is found.
func resolve(start Start, work *folder, cfg Config, firstPy string) (*program, error) {
	p := &program{dir: work.path}
	if start.Directory != "" {
		p.dir = start.Directory
		if st, err := os.Stat(p.dir); err != nil || !st.IsDir() {
			return nil, invalid("host_directory: %q is not a folder that can be reached", start.Directory)
		}
	}
	var err error
	if p.env, err = environment(start, work); err != nil {
		return nil, err
	}
	if len(start.Command) > 0 {
		p.argv = slices.Concat(start.Command, start.Args)
	} else {
		if len(start.Interpreter) == 0 {
			return nil, failed(executor.Internal, executor.PhasePrepare, "neither a command nor an interpreter")
		}
		entry, err := entrypoint(start, work, p.dir, cfg, firstPy)
		if err != nil {
			return nil, err
		}
		p.argv = slices.Concat(start.Interpreter, []string{entry}, start.Args)
	}
	for _, arg := range p.argv {
		if strings.ContainsRune(arg, 0) {
			return nil, invalid("args: %q contains a zero byte", arg)
		}
	}
	p.path, err = lookUp(p.argv[0], p.dir, p.env)
	return p, err
}

// entrypoint returns the file to run as the interpreter's argument: relative to the program's folder, so that
// sys.argv[0] is what the user wrote.
func entrypoint(start Start, work *folder, dir string, cfg Config, firstPy string) (string, error) {
	if start.Code != "" {
		if err := writeCode(work, cfg, start.Code); err != nil {
			return "", err
		}
		if start.Directory != "" {
			return filepath.Join(work.path, "main.py"), nil
		}
		return "main.py", nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", invalid("host_directory: %v", err)
	}
	defer root.Close() //nolint:errcheck // read only
	if start.Entrypoint != "" {
		return chosenEntrypoint(root, start.Entrypoint)
	}
	for _, name := range []string{"main.py", "__main__.py", firstPy} {
		if name == "" {
			continue
		}
		if st, err := root.Stat(name); err == nil && st.Mode().IsRegular() {
			return argument(name), nil
		}
	}
	return "", invalid("no entrypoint: there is no main.py, no __main__.py and no other .py file; name one (entrypoint)")
}

func chosenEntrypoint(root *os.Root, name string) (string, error) {
	clean := path.Clean(name)
	if path.IsAbs(name) || leaves(clean) || strings.ContainsRune(name, 0) {
		return "", invalidField("entrypoint", "%q is not inside the work folder", name)
	}
	st, err := root.Stat(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", invalidField("entrypoint", "%q does not exist", name)
	case err != nil:
		return "", invalidField("entrypoint", "%q cannot be used: %v", name, err)
	case !st.Mode().IsRegular():
		return "", invalidField("entrypoint", "%q is not a regular file", name)
	}
	return argument(clean), nil
}

// argument keeps a file name from being taken for an option.
func argument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "./" + name
	}
	return name
}

func writeCode(work *folder, cfg Config, code string) error {
	fd, err := unix.Openat(work.fd(), "main.py", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return invalidField("code", "the workspace has a main.py of its own")
	}
	if err != nil {
		return fmt.Errorf("write code: %w", err)
	}
	f := os.NewFile(uintptr(fd), "main.py") //nolint:gosec // a descriptor
	_, err = f.WriteString(code)
	if cfg.UID != 0 {
		err = errors.Join(err, f.Chown(cfg.UID, cfg.GID))
	}
	if err = errors.Join(err, f.Close()); errors.Is(err, unix.ENOSPC) {
		return invalidField("code", "it does not fit into the disk limit")
	}
	return err
}

// lookUp finds the file of argv[0]: as it is if it has a slash (relative to dir), else on the program's own PATH.
func lookUp(name, dir string, env []string) (string, error) {
	if name == "" {
		return "", failed(executor.Invalid, executor.PhaseStart, "command: an empty program name")
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
			st, err := os.Stat(file)
			if err != nil || st.IsDir() {
				continue
			}
			if st.Mode()&0o111 != 0 {
				return file, nil
			}
			found = failed(executor.Invalid, executor.PhaseStart, "%s: permission denied", name)
		}
	}
	if found != nil {
		return "", found
	}
	return "", failed(executor.NotFound, executor.PhaseStart, "%s: not found on PATH", name)
}

// startFailure turns what execve said into a Failure. Whether the file exists tells a missing program from a missing
// interpreter of it.
func startFailure(p *program, uid int, err error) error {
	name := p.argv[0]
	file := p.path
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.dir, file)
	}
	_, statErr := os.Stat(file)
	switch {
	case errors.Is(err, syscall.ENOENT) && statErr != nil:
		return failed(executor.NotFound, executor.PhaseStart, "%s: not found", name)
	case errors.Is(err, syscall.ENOENT):
		return failed(executor.Invalid, executor.PhaseStart, "%s: its interpreter or loader does not exist", name)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return failed(executor.Invalid, executor.PhaseStart, "%s: permission denied (uid %d, folder %s)", name, uid, p.dir)
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.E2BIG),
		errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.ELIBBAD), errors.Is(err, syscall.EINVAL):
		return failed(executor.Invalid, executor.PhaseStart, "%s: cannot be executed: %v", name, err)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return failed(executor.Exhausted, executor.PhaseStart, "%s: %v", name, err)
	default:
		return failed(executor.Internal, executor.PhaseStart, "%s: %v", name, err)
	}
}
