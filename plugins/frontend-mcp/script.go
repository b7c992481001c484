package mcpfrontend

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

var minorForm = regexp.MustCompile(`^3\.\d{1,2}$`)

// script is what a tool of the toolset python runs.
type script struct {
	spec     executor.Spec
	input    executor.Input
	strategy string
	// defaulted reports whether the call has no timeout_seconds.
	defaulted bool
	// content is script_content; empty: the script is a file.
	content string
	advice  advice
	// opened are the folder and the file of the host that the script uses. close closes them.
	opened []io.Closer
}

// close closes what s has opened. Nobody reads the input of s any more. s may be nil.
func (s *script) close() {
	if s == nil {
		return
	}
	for _, c := range s.opened {
		_ = c.Close() // read only
	}
	s.opened = nil
}

// inPlace makes s run in dir, a folder of the host. The files that s writes stay there.
func (s *script) inPlace(dir string) {
	s.spec.HostDirectory, s.spec.OutputsChanged = dir, false
	if s.spec.Code != "" {
		// The backend stores the code in another folder, but the code must import the modules in dir.
		s.spec.Env = map[string]string{"PYTHONPATH": dir}
	}
}

// bound sets the limit of CPU time of s.
func (s *script) bound(a cpuArgs) error {
	if err := a.bound(&s.spec.Limits); err != nil {
		return valueError("%v", err)
	}
	return nil
}

// limits sets the timeout and the limit of CPU time of s. A timeout of nil means the default, and 0 the server's maximum.
func (s *script) limits(a syncArgs) error {
	if err := s.bound(a.cpuArgs); err != nil {
		return err
	}
	n := int64(defaultTimeoutSeconds)
	if s.defaulted = a.TimeoutSeconds == nil; !s.defaulted {
		n = *a.TimeoutSeconds
	}
	switch {
	case s.defaulted && s.spec.Limits.CPUTime > defaultTimeoutSeconds*time.Second/executor.TimeoutPerCPU:
		s.spec.Limits.Timeout = 0 // the engine's default leaves the program time to use its CPU time
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

// dirScript returns the script of run_script_in_dir. The caller closes it.
func (p *python) dirScript(a dirArgs) (_ *script, err error) {
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
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	dir, err := p.folder("directory", a.Directory)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, dir.root)
	var file *hostFile
	if a.ScriptPath != nil {
		if file, err = p.file(dir.path, *a.ScriptPath); err != nil {
			return nil, err
		}
		s.opened = append(s.opened, file.opened)
	} else {
		s.spec.Code, s.content = *a.ScriptContent, *a.ScriptContent
	}
	if err := p.interpreter(s, dir, file, uv); err != nil {
		return nil, err
	}
	if p.inPlace() {
		s.inPlace(dir.path)
		return s, hostScript(s, dir.path, file)
	}
	return s, p.copied(s, dir, file)
}

// interpreter sets the interpreter of s and, with uv, what the program and the project in dir require. file is the program; nil: it is
// Spec.Code.
func (p *python) interpreter(s *script, dir *hostFolder, file *hostFile, uv bool) (err error) {
	if !uv {
		s.strategy = strategySystem
		if p.backend().Capabilities.SystemInterpreter {
			s.spec.Interpreter = executor.InterpreterSystem
		}
		return nil
	}
	name, program := "script_content", []byte(s.spec.Code)
	if file != nil {
		name = filepath.Base(file.path)
		if program, err = file.head(); err != nil {
			return notFoundError("script_path cannot be read: %v", err)
		}
	}
	found, err := detect.Folder(dir.root.FS(), name, program)
	if err != nil {
		return valueError("%s: %v", dir.path, err)
	}
	s.spec.Requirements = found.Requirements
	if versions := p.backend().Capabilities.Pythons(); found.PythonVersion != "" && s.spec.PythonVersion == "" {
		s.spec.PythonVersion = detect.SelectVersion(found.PythonVersion, versions)
		if s.spec.PythonVersion == "" && len(versions) > 0 {
			return valueError("python_version must be given: the program requires Python %s, which is none of %s", found.PythonVersion, strings.Join(versions, ", "))
		}
	}
	return nil
}

// hostScript makes file the program of s. file may lie outside dir. nil changes nothing.
func hostScript(s *script, dir string, file *hostFile) error {
	if file == nil {
		return nil
	}
	if rel, err := filepath.Rel(dir, file.path); err == nil && filepath.IsLocal(rel) {
		s.spec.Entrypoint = filepath.ToSlash(rel)
		return nil
	}
	if problem := detect.NotAProgram(file.path); problem != "" { // the engine checks entrypoints, but not commands
		return valueError("script_path: %s", problem)
	}
	s.spec.Command = []string{"python3", file.path}
	return nil
}

// copied makes a copy of dir the Workspace of s.
func (p *python) copied(s *script, dir *hostFolder, file *hostFile) error {
	if file != nil {
		rel, err := filepath.Rel(dir.path, file.path)
		if err != nil || !filepath.IsLocal(rel) {
			return valueError("script_path must lie in directory: only directory is sent to the sandbox (got %s)", file.path)
		}
		s.spec.Entrypoint = filepath.ToSlash(rel)
	}
	if err := dir.measure(maxCopyFiles, maxCopyBytes); err != nil {
		return err
	}
	s.input.Workspace = dir.source("", nil)
	if file != nil && !dir.isSent(s.spec.Entrypoint) {
		// The folder is sent without links and generated folders. The named script is sent even if it is one of them.
		code, err := file.all()
		s.input.Workspace = dir.source(s.spec.Entrypoint, code)
		return err
	}
	if s.spec.Code == "" {
		return nil
	}
	if dir.has("main.py") {
		// Code runs as main.py; the folder has one of its own, so the code goes along under another name.
		s.spec.Entrypoint = dir.freeName()
		s.input.Workspace = dir.source(s.spec.Entrypoint, []byte(s.spec.Code))
		s.spec.Code = ""
	}
	return nil
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
	defer file.opened.Close() //nolint:errcheck // read only
	if p.inPlace() {
		s.inPlace(filepath.Dir(file.path))
		s.spec.Entrypoint = filepath.Base(file.path)
		return s, nil
	}
	code, err := file.all()
	if err != nil {
		return nil, err
	}
	// The script is sent as a file, not as Spec.Code: it keeps its name and need not be UTF-8.
	s.spec.Entrypoint = filepath.Base(file.path)
	s.input.Workspace = (*hostFolder)(nil).source(s.spec.Entrypoint, code)
	return s, nil
}
