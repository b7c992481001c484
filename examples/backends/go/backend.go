package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// settings are the keys of the section backends.NAME besides type, path and sha256.
type settings struct {
	// Python is the interpreter of the programs, looked up on the PATH.
	Python string `json:"python"`
}

// local is the Backend. It implements executor.Backend and io.Closer.
type local struct {
	name string
	// work holds the folders of the programs.
	work *workFolder
	// python is the path of the interpreter and pythonVersion its full version.
	python, pythonVersion string
	can                   executor.Capabilities

	jobs backend.Jobs
}

var _ executor.Backend = (*local)(nil)

// newBackend is the plugin.Factory.
func newBackend(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	s := settings{Python: "python3"}
	problems := backend.Section(c.Name)
	problems.Read(c.Options, &s)
	b := &local{name: c.Name}
	var err error
	if b.python, b.pythonVersion, err = findPython(ctx, s.Python); err != nil {
		problems.Add("python", "must be a Python interpreter (got %q): %v", s.Python, err)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if b.work, err = openWorkFolder(c.DataDir); err != nil {
		return nil, executor.Errorf(executor.Unavailable, "work folder: %w", err)
	}
	b.can = executor.Capabilities{
		Isolation: executor.IsolationNone, NetworkOn: true, CPUTime: true, Commands: true, Artifacts: true, MemorySamples: true,
		SystemInterpreter: true, LocalPath: true,
		Languages: []executor.Language{executor.LanguagePython}, PythonVersions: []string{minor(b.pythonVersion)},
	}
	return b, nil
}

// findPython returns the path and the version of an interpreter.
func findPython(ctx context.Context, name string) (path, version string, err error) {
	out, err := exec.CommandContext(ctx, name, "-c", "import platform, sys; print(sys.executable); print(platform.python_version())").Output()
	if err != nil {
		return "", "", err
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return "", "", fmt.Errorf("it says %q", out)
	}
	return lines[0], lines[1], nil
}

// minor returns 3.12 of 3.12.1.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return parts[0] + "." + parts[1]
}

// Info implements executor.Backend. Each limit that is not promised has a warning.
func (b *local) Info(context.Context) (executor.Info, error) {
	return executor.Info{
		Name: b.name, Type: "local-go", Version: version, Healthy: true, Capabilities: b.can,
		Warnings: []string{
			"programs are processes of this host without isolation: they have all the rights of this server's user",
			"the network cannot be switched off: programs reach every service of the host, those on its loopback addresses included",
			"memory_mb, cpu_shares and pids (the number of processes) are not enforced",
			"disk_mb is not enforced, only the size of a single file and of the files that are sent",
			"programs share the host's /tmp, and what they leave there stays",
		},
		Details: map[string]string{"python": b.python, "python_version": b.pythonVersion, "work_dir": b.work.path},
	}, nil
}

// refuse returns an error that names every field of spec that this backend cannot serve.
func (b *local) refuse(spec executor.Spec) error {
	p := backend.CheckSpec(spec, b.can, nil)
	have := minor(b.pythonVersion)
	if spec.PythonVersion != "" && spec.PythonVersion != have {
		p.Add("python_version", "must be %s (got %q)", have, spec.PythonVersion)
	}
	if spec.Image != "" && spec.Image != "python:"+have && !strings.HasPrefix(spec.Image, "python:"+have+"-") {
		p.Refuse("docker_image", "must be python:%s (got %q)", have, spec.Image)
	}
	return p.Err()
}

// Attach implements executor.Backend.
func (b *local) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "programs of this backend end with its plugin")
}

// Remove implements executor.Backend.
func (b *local) Remove(ctx context.Context, id string) error { return b.jobs.Remove(ctx, id) }

// Close implements io.Closer. The host calls it when it drains the plugin.
func (b *local) Close() error {
	b.jobs.Close(backend.ErrClosed)
	return b.work.close()
}

// workFolder is a folder of one plugin process. A process that was killed leaves its folder, and the next one removes it.
type workFolder struct {
	path string
	lock *os.File
}

func openWorkFolder(parent string) (*workFolder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	old, err := filepath.Glob(filepath.Join(parent, "work-*"))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		if lock, err := lockFolder(path); err == nil { // no process holds it any more
			os.RemoveAll(path)
			lock.Close()
		}
	}
	path, err := os.MkdirTemp(parent, "work-")
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(path)
	return &workFolder{path, lock}, err
}

func (w *workFolder) close() error {
	defer w.lock.Close()
	return os.RemoveAll(w.path)
}
