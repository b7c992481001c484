package mcpfrontend

import (
	"archive/tar"
	"context"
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

// The bounds of a folder that is sent to a sandbox.
const (
	maxCopyBytes = 256 << 20
	maxCopyFiles = 20_000
	maxScript    = 8 << 20
)

// leftOut are folders that are not sent: what tools made, and what has no use elsewhere.
var leftOut = []string{".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

var minorForm = regexp.MustCompile(`^3\.\d{1,2}$`)

// script is what a tool of the toolset python has to run.
type script struct {
	spec     executor.Spec
	input    executor.Input
	strategy string
	// host: the Spec reaches the host's folders, for which this plugin vouches.
	host bool
}

// ctx is ctx with the right that s needs: whether a folder may be used was decided here, by the configuration.
func (s *script) ctx(ctx context.Context) context.Context {
	if !s.host {
		return ctx
	}
	p := executor.PrincipalFrom(ctx)
	if !p.Has(executor.ScopeTrusted) {
		p.Scopes = append(slices.Clone(p.Scopes), executor.ScopeTrusted)
	}
	return executor.WithPrincipal(ctx, p)
}

// inPlace has s run in a folder of the host, where what it makes stays.
func (s *script) inPlace(dir string) {
	s.host, s.spec.HostDirectory, s.spec.OutputsChanged = true, dir, false
	if s.spec.Code != "" {
		// Code lies in a folder of its own, but imports what lies beside it for who has asked.
		s.spec.Env = map[string]string{"PYTHONPATH": dir}
	}
}

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

// base is the Spec that all scripts share.
func (p *python) base(args []string, version string) (*script, error) {
	if version != "" && !minorForm.MatchString(version) {
		return nil, valueError("python_version must be an exact minor version like 3.13 (got %q)", version)
	}
	return &script{strategy: strategyUV, spec: executor.Spec{
		Args: args, PythonVersion: version, Backend: p.config.Backend, Network: p.config.network(ToolsetPython),
		OutputsChanged: p.backend.Capabilities.Artifacts, // what it makes is linked to
		Limits:         executor.Limits{Timeout: executor.TimeoutMaximum},
	}}, nil
}

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

// dirScript is what run_script_in_dir runs.
func (p *python) dirScript(_ context.Context, a dirArgs) (*script, error) {
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
		s.spec.Code = *a.ScriptContent
	}
	if err := p.interpreter(s, dir, uv); err != nil {
		return nil, err
	}
	if p.inPlace() {
		s.inPlace(dir)
		p.hostScript(s, dir, file)
		return s, nil
	}
	return s, p.copied(s, dir, file)
}

// interpreter chooses it, and with uv the locked dependencies of the folder's project.
func (p *python) interpreter(s *script, dir string, uv bool) error {
	if !uv {
		s.strategy = strategySystem
		if p.backend.Capabilities.SystemInterpreter {
			s.spec.Interpreter = executor.InterpreterSystem
		}
		return nil
	}
	root, err := os.OpenRoot(dir) // a link out of the folder is not followed
	if err != nil {
		return notFoundError("directory cannot be read: %s", dir)
	}
	defer root.Close() //nolint:errcheck // read only
	project, err := detect.Project(root.FS())
	if err != nil {
		return valueError("%s: %v", dir, err)
	}
	s.spec.Requirements = project.Requirements
	return nil
}

// hostScript names file, which may lie outside dir, as the program.
func (p *python) hostScript(s *script, dir, file string) {
	if file == "" {
		return
	}
	if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
		s.spec.Entrypoint = filepath.ToSlash(rel)
		return
	}
	s.spec.Command = []string{"python3", file}
}

// copied sends dir along.
func (p *python) copied(s *script, dir, file string) error {
	if file != "" {
		rel, err := filepath.Rel(dir, file)
		if err != nil || !filepath.IsLocal(rel) {
			return valueError("script_path %s is not in directory, and only directory is sent to the sandbox", file)
		}
		s.spec.Entrypoint = filepath.ToSlash(rel)
	}
	if err := measure(dir); err != nil {
		return err
	}
	s.input.Workspace = folderSource(dir, "", nil)
	if file != "" && !isSent(dir, s.spec.Entrypoint) {
		// Links and what tools made stay here, but for the script that was named.
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

// isSent reports whether walk comes to the file rel of dir.
func isSent(dir, rel string) bool {
	folders := strings.Split(rel, "/")
	if slices.ContainsFunc(folders[:len(folders)-1], func(name string) bool { return slices.Contains(leftOut, name) }) {
		return false
	}
	st, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(rel)))
	return err == nil && st.Mode().IsRegular()
}

// readScript reads a script that is sent alone.
func readScript(file string) ([]byte, error) {
	code, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, notFoundError("script_path cannot be read: %v", err)
	case len(code) > maxScript:
		return nil, valueError("script_path %s is larger than %d bytes", file, maxScript)
	}
	return code, nil
}

// freeName is the name of a script that dir does not have.
func freeName(dir string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("script_content_%d.py", i)
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return name
		}
	}
}

// depsScript is what run_script_with_dependencies and benchmark_script run.
func (p *python) depsScript(_ context.Context, a depsArgs) (*script, error) {
	if err := oneOf(a.ScriptPath, a.ScriptContent); err != nil {
		return nil, err
	}
	if a.PythonVersion == "" {
		return nil, valueError("python_version must be given: an exact minor version like 3.13")
	}
	s, err := p.base(a.Args, a.PythonVersion)
	if err != nil {
		return nil, err
	}
	for i, d := range a.Dependencies {
		if strings.ContainsAny(d, "\r\n") || strings.TrimSpace(d) == "" || strings.HasPrefix(strings.TrimSpace(d), "-") {
			return nil, valueError("dependencies[%d] must be one requirement, like requests or numpy>=2 (got %q)", i, d)
		}
	}
	s.spec.Requirements = strings.Join(a.Dependencies, "\n")
	if a.ScriptContent != nil {
		s.spec.Code = *a.ScriptContent
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
	// As a file: it keeps its name, and is not necessarily UTF-8.
	s.spec.Entrypoint = filepath.Base(file)
	s.input.Workspace = folderSource("", s.spec.Entrypoint, code)
	return s, nil
}

// folder checks that dir is a folder that may be used, and returns its real path.
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
		// One answer for what is not there and what may not be seen.
		return "", notFoundError("%s is not one of the folders of this server (mcp.directories): %s", name, dir)
	}
	return real, nil
}

// file checks that path is a script that may be used, and returns its real path.
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
	// The name as given keeps __file__ and neighbours what the user sees; only its folder is resolved.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && p.mayUse(parent) {
		return filepath.Join(parent, filepath.Base(path)), nil
	}
	return real, nil
}

// mayUse reports whether real, a path without links, may be used: over stdio all that its user may, over HTTP what lies
// in a configured root.
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

var errStopWalk = errors.New("too much")

// walk visits what is sent of dir.
func walk(dir string, visit func(rel string, e fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if e.IsDir() && slices.Contains(leftOut, e.Name()) {
			return filepath.SkipDir
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return nil // links may lead out of the folder, and nothing else can be sent
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), e)
	})
}

// measure refuses a folder that is too large to be sent.
func measure(dir string) error {
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
		if files > maxCopyFiles || size > maxCopyBytes {
			return errStopWalk
		}
		return nil
	})
	switch {
	case errors.Is(err, errStopWalk):
		return valueError("directory %s is too large to be sent to the sandbox: at most %d files and %d MB", dir, maxCopyFiles, maxCopyBytes>>20)
	case err != nil:
		return valueError("directory %s cannot be read: %v", dir, err)
	}
	return nil
}

// folderSource is dir as a tar that is made while it is read, with one more file if it has a name. Without dir that is all.
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
		_, err = io.CopyN(t, f, info.Size()) // one that shrinks meanwhile is an error
		return err
	})
}
