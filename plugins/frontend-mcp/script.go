package mcpfrontend

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// The bounds of a folder, and of a single script, that is sent to a sandbox.
const (
	maxCopyBytes = 256 << 20
	maxCopyFiles = 20_000
	maxScript    = 8 << 20
)

// leftOut are the names of folders that are not sent. Tools generate them, and a sandbox has no use for them.
var leftOut = []string{".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

var minorForm = regexp.MustCompile(`^3\.\d{1,2}$`)

// script is what a tool of the toolset python runs.
type script struct {
	spec     executor.Spec
	input    executor.Input
	strategy string
	// content is script_content; empty: the script is a file.
	content string
	advice  advice
}

// inPlace makes s run in dir, a folder of the host. The files that s writes stay there.
func (s *script) inPlace(dir string) {
	s.spec.HostDirectory, s.spec.OutputsChanged = dir, false
	if s.spec.Code != "" {
		// The backend stores the code in another folder, but the code must import the modules in dir.
		s.spec.Env = map[string]string{"PYTHONPATH": dir}
	}
}

// timeout sets the timeout of s. nil means the default, and 0 the server's maximum.
func (s *script) timeout(seconds *int64) error {
	n := int64(defaultTimeoutSeconds)
	if seconds != nil {
		n = *seconds
	}
	switch {
	case n < 0:
		return valueError("timeout_seconds must not be negative (got %d)", n)
	case n == 0:
		s.spec.Limits.Timeout = executor.TimeoutMaximum
	default:
		s.spec.Limits.Timeout = duration(n, time.Second)
	}
	return nil
}

// base returns a script with the fields that all scripts share.
func (p *python) base(args []string, version string) (*script, error) {
	if err := p.checkVersion(version); err != nil {
		return nil, valueError("%v", err)
	}
	return &script{strategy: strategyUV, advice: p.advice(ToolsetPython, addDependencies), spec: executor.Spec{
		Args: args, PythonVersion: version, Backend: p.config.Backend, Network: p.config.network(ToolsetPython),
		OutputsChanged: p.backend().Capabilities.Artifacts, // the result links to these files
		Limits:         executor.Limits{Timeout: executor.TimeoutMaximum},
	}}, nil
}

// addDependencies tells how a script gets packages.
func addDependencies(packages string) string {
	return "call run_script_with_dependencies with dependencies=" + packages + "."
}

// oneOf checks that exactly one of script_path and script_content is given, and that its value is usable.
func oneOf(path, content *string) error {
	switch {
	case path != nil && content != nil:
		return valueError("provide exactly one of script_path and script_content, not both")
	case path == nil && content == nil:
		return valueError("provide exactly one of script_path and script_content")
	case content != nil && strings.TrimSpace(*content) == "":
		return valueError("script_content must not be empty")
	case content != nil && strings.ContainsRune(*content, 0):
		return valueError("script_content must not contain a NUL byte")
	case path != nil && *path == "":
		return valueError("script_path must not be empty")
	}
	return nil
}

// dirScript returns the script of run_script_in_dir.
func (p *python) dirScript(a dirArgs) (*script, error) {
	if err := oneOf(a.ScriptPath, a.ScriptContent); err != nil {
		return nil, err
	}
	uv := a.UseUV == nil || *a.UseUV
	version := ""
	if uv && a.PythonVersion != nil {
		version = *a.PythonVersion
	}
	s, err := p.base(a.Args, version)
	if err != nil {
		return nil, err
	}
	dir, err := p.folder("directory", a.Directory)
	if err != nil {
		return nil, err
	}
	file := ""
	if a.ScriptPath != nil {
		if file, err = p.file(dir, *a.ScriptPath); err != nil {
			return nil, err
		}
	} else {
		s.spec.Code, s.content = *a.ScriptContent, *a.ScriptContent
	}
	if err := p.interpreter(s, dir, file, uv); err != nil {
		return nil, err
	}
	if p.inPlace() {
		s.inPlace(dir)
		return s, hostScript(s, dir, file)
	}
	return s, p.copied(s, dir, file)
}

// interpreter sets the interpreter of s and, with uv, what the program and the project in dir require. file is the program; empty: it is
// Spec.Code.
func (p *python) interpreter(s *script, dir, file string, uv bool) error {
	if !uv {
		s.strategy = strategySystem
		if p.backend().Capabilities.SystemInterpreter {
			s.spec.Interpreter = executor.InterpreterSystem
		}
		return nil
	}
	root, err := os.OpenRoot(dir) // does not follow links out of the folder
	if err != nil {
		return notFoundError("directory cannot be read: %s", dir)
	}
	defer root.Close() //nolint:errcheck // read only
	name, program := "script_content", []byte(s.spec.Code)
	if file != "" {
		name = filepath.Base(file)
		if program, err = readHead(file); err != nil {
			return notFoundError("script_path cannot be read: %v", err)
		}
	}
	found, err := detect.Folder(root.FS(), name, program)
	if err != nil {
		return valueError("%s: %v", dir, err)
	}
	s.spec.Requirements = found.Requirements
	if versions := p.backend().Capabilities.PythonVersions; found.PythonVersion != "" && s.spec.PythonVersion == "" {
		s.spec.PythonVersion = detect.SelectVersion(found.PythonVersion, versions)
		if s.spec.PythonVersion == "" && len(versions) > 0 {
			return valueError("python_version must be given: the program requires Python %s, and the versions at hand are %s", found.PythonVersion, strings.Join(versions, ", "))
		}
	}
	return nil
}

// hostScript makes file the program of s. file may lie outside dir. An empty file changes nothing.
func hostScript(s *script, dir, file string) error {
	if file == "" {
		return nil
	}
	if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
		s.spec.Entrypoint = filepath.ToSlash(rel)
		return nil
	}
	if problem := detect.NotAProgram(file); problem != "" { // the engine checks entrypoints, but not commands
		return valueError("script_path: %s", problem)
	}
	s.spec.Command = []string{"python3", file}
	return nil
}

// copied makes a copy of dir the Workspace of s.
func (p *python) copied(s *script, dir, file string) error {
	if file != "" {
		rel, err := filepath.Rel(dir, file)
		if err != nil || !filepath.IsLocal(rel) {
			return valueError("script_path must lie in directory: only directory is sent to the sandbox (got %s)", file)
		}
		s.spec.Entrypoint = filepath.ToSlash(rel)
	}
	if err := measure(dir, maxCopyFiles, maxCopyBytes); err != nil {
		return err
	}
	s.input.Workspace = folderSource(dir, "", nil)
	if file != "" && !isSent(dir, s.spec.Entrypoint) {
		// The folder is sent without links and generated folders. The named script is sent even if it is one of them.
		code, err := readScript(file)
		s.input.Workspace = folderSource(dir, s.spec.Entrypoint, code)
		return err
	}
	if s.spec.Code == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, "main.py")); err == nil {
		// Code runs as main.py; the folder has one of its own, so the code goes along under another name.
		s.spec.Entrypoint = freeName(dir)
		s.input.Workspace = folderSource(dir, s.spec.Entrypoint, []byte(s.spec.Code))
		s.spec.Code = ""
	}
	return nil
}

// isSent reports whether walk visits the file rel of dir.
func isSent(dir, rel string) bool {
	folders := strings.Split(rel, "/")
	if slices.ContainsFunc(folders[:len(folders)-1], func(name string) bool { return slices.Contains(leftOut, name) }) {
		return false
	}
	st, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(rel)))
	return err == nil && st.Mode().IsRegular()
}

// readScript reads a script of at most maxScript bytes.
func readScript(file string) ([]byte, error) {
	code, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, notFoundError("script_path cannot be read: %v", err)
	case len(code) > maxScript:
		return nil, valueError("script_path must be a file of at most %d bytes (%s has %d)", maxScript, file, len(code))
	}
	return code, nil
}

// readHead reads at most maxScript bytes of a script. Its metadata is near the top.
func readHead(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return io.ReadAll(io.LimitReader(f, maxScript))
}

// freeName returns a script name that does not exist in dir.
func freeName(dir string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("script_content_%d.py", i)
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return name
		}
	}
}

// depsScript returns the script of run_script_with_dependencies and benchmark_script.
func (p *python) depsScript(a depsArgs) (*script, error) {
	if err := oneOf(a.ScriptPath, a.ScriptContent); err != nil {
		return nil, err
	}
	s, err := p.base(a.Args, a.PythonVersion)
	if err != nil {
		return nil, err
	}
	if s.spec.Requirements, err = requirements("dependencies", a.Dependencies); err != nil {
		return nil, valueError("%v", err)
	}
	if a.ScriptContent != nil {
		s.spec.Code, s.content = *a.ScriptContent, *a.ScriptContent
		return s, nil
	}
	if !p.config.Stdio && !filepath.IsAbs(*a.ScriptPath) {
		return nil, valueError("script_path must be an absolute path (got %q)", *a.ScriptPath)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	file, err := p.file(cwd, *a.ScriptPath)
	if err != nil {
		return nil, err
	}
	if p.inPlace() {
		s.inPlace(filepath.Dir(file))
		s.spec.Entrypoint = filepath.Base(file)
		return s, nil
	}
	code, err := readScript(file)
	if err != nil {
		return nil, err
	}
	// The script is sent as a file, not as Spec.Code: it keeps its name and need not be UTF-8.
	s.spec.Entrypoint = filepath.Base(file)
	s.input.Workspace = folderSource("", s.spec.Entrypoint, code)
	return s, nil
}

// folder checks that the client may use the folder dir, and returns its real path. name is the argument for errors.
func (p *python) folder(name, dir string) (string, error) {
	if dir == "" {
		return "", valueError("%s must not be empty", name)
	}
	if !filepath.IsAbs(dir) {
		if !p.config.Stdio {
			return "", valueError("%s must be an absolute path (got %q)", name, dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", valueError("%s: %v", name, err)
		}
		dir = abs
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		if st, statErr := os.Stat(real); statErr != nil || !st.IsDir() {
			err = errors.New("not a folder")
		}
	}
	if allowed := p.mayUse(real); err != nil || !allowed {
		if p.config.Stdio || err == nil && allowed {
			return "", notFoundError("%s does not exist or is not a folder: %s", name, dir)
		}
		// A missing folder and a forbidden one get the same answer, so that clients cannot probe the host.
		return "", notFoundError("%s is not one of the folders of this server (mcp.directories): %s", name, dir)
	}
	return real, nil
}

// file checks that the client may use the script at path, and returns its path with resolved folders. A relative path is
// relative to dir.
func (p *python) file(dir, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		if st, statErr := os.Stat(real); statErr != nil || !st.Mode().IsRegular() {
			err = errors.New("not a file")
		}
	}
	if err != nil || !p.mayUse(real) {
		return "", notFoundError("script_path does not exist or is not a file: %s", path)
	}
	// Only the folder is resolved: __file__ and the neighbouring files are then those that the user sees.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && p.mayUse(parent) {
		return filepath.Join(parent, filepath.Base(path)), nil
	}
	return real, nil
}

// mayUse reports whether the client may use real, a path without links. A client over stdio may use all paths. A client over
// HTTP may use the paths in Config.Directories.
func (p *python) mayUse(real string) bool {
	if p.config.Stdio {
		return true
	}
	if real == "" {
		return false
	}
	return slices.ContainsFunc(p.config.Directories, func(root string) bool {
		root, err := filepath.EvalSymlinks(root)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(root, real)
		return err == nil && filepath.IsLocal(rel)
	})
}

// errStopWalk ends a walk of a folder that is too large.
var errStopWalk = errors.New("folder too large")

// walk visits the files and folders of dir that are sent to a sandbox.
func walk(dir string, visit func(rel string, e fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if e.IsDir() && slices.Contains(leftOut, e.Name()) {
			return filepath.SkipDir
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return nil // a link may lead out of the folder, and special files cannot be sent
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), e)
	})
}

// measure refuses a folder of which more files or bytes would be sent.
func measure(dir string, maxFiles int, maxBytes int64) error {
	var files int
	var size int64
	err := walk(dir, func(_ string, e fs.DirEntry) error {
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().IsRegular() {
			size += info.Size()
		}
		if files > maxFiles || size > maxBytes {
			return errStopWalk
		}
		return nil
	})
	switch {
	case errors.Is(err, errStopWalk):
		return valueError("directory must have at most %d files and %d MB to be sent to the sandbox (got %s)", maxFiles, maxBytes>>20, dir)
	case err != nil:
		return valueError("directory %s cannot be read: %v", dir, err)
	}
	return nil
}

// folderSource returns dir as a tar, which is written while the reader reads. If name is not empty, the tar also has a file
// of that name with data as its content. An empty dir adds no files.
func folderSource(dir, name string, data []byte) *executor.Source {
	return &executor.Source{SizeBytes: -1, Replayable: true, Open: func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			t := tar.NewWriter(w)
			var err error
			if dir != "" {
				err = writeFolder(t, dir)
			}
			if err == nil && name != "" {
				err = t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644})
				if err == nil {
					_, err = t.Write(data)
				}
			}
			w.CloseWithError(errors.Join(err, t.Close()))
		}()
		return r, nil
	}}
}

func writeFolder(t *tar.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	return walk(dir, func(rel string, e fs.DirEntry) error {
		if e.IsDir() {
			return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o755})
		}
		f, err := root.Open(rel)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: rel, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(),
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.CopyN(t, f, info.Size()) // fails if the file has shrunk
		return err
	})
}
