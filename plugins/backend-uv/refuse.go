package uvbackend

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// refusal collects what a job asks for and cannot have. The first code that is found counts; every field is named.
type refusal struct {
	code   executor.Code
	fields []executor.FieldError
}

func (r *refusal) add(code executor.Code, field, format string, args ...any) {
	if r.code == "" || code == executor.Invalid {
		r.code = code
	}
	r.fields = append(r.fields, executor.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (r *refusal) err() error {
	if len(r.fields) == 0 {
		return nil
	}
	lines := make([]string, len(r.fields))
	for i, f := range r.fields {
		lines[i] = f.Field + ": " + f.Message
	}
	return &executor.Error{Code: r.code, Op: "run", Message: strings.Join(lines, "\n"), Fields: r.fields}
}

// refuse says why spec cannot run here; nil: it can. can is what this backend enforces.
func refuse(spec executor.Spec, can executor.Capabilities) error {
	var r refusal
	no := func(asked bool, field, message string) {
		if asked {
			r.add(executor.Unimplemented, field, "%s", message)
		}
	}
	no(spec.Session == "" && spec.Language != executor.LanguageDefault && spec.Language != executor.LanguagePython, "language", "the uv backend runs Python; use command for others")
	no(len(spec.PreCommands) > 0, "pre_commands", "the uv backend has no image to prepare; use a backend with images")
	no(spec.Session != "" && !can.Sessions, "session", "there are no sessions here")
	no(spec.Script != "", "script", "the uv backend runs no host scripts")
	no(spec.Limits.MemoryBytes > 0 && !can.Memory, "config.memory_mb", "cannot be enforced here: no memory control group is ours to use")
	no(spec.Limits.DiskBytes > 0 && !can.Disk, "config.disk_mb", "cannot be enforced here: no tmpfs can be mounted")
	no(spec.Limits.CPUShares > 0 && !can.CPU, "config.cpu_shares", "cannot be enforced here: no CPU control group is ours to use")
	no(spec.Limits.PIDs > 0 && !can.PIDs, "config.pids", "cannot be enforced here: no process control group is ours to use")
	no(spec.Network == executor.NetworkOff && !can.NetworkOff, "config.network_disabled", "cannot be enforced here: neither root nor user namespaces")
	no(spec.SampleInterval > 0 && !can.MemorySamples, "sample_interval_seconds", "memory cannot be sampled here")
	if dir := spec.HostDirectory; dir != "" {
		info, err := os.Stat(dir)
		switch {
		case !can.HostDirectories:
			r.add(executor.Unimplemented, "host_directory", "programs run under uids of their own here, which have no rights to it: set backends.uv.isolation to none")
		case !filepath.IsAbs(dir) || err != nil || !info.IsDir():
			r.add(executor.Invalid, "host_directory", "must be an absolute path of a folder")
		}
	}
	if spec.Interpreter == executor.InterpreterSystem && strings.TrimSpace(spec.Requirements) != "" {
		r.add(executor.Invalid, "requirements_txt", "cannot be installed into the system interpreter")
	}
	if spec.PythonVersion != "" && !minorForm.MatchString(spec.PythonVersion) {
		r.add(executor.Invalid, "python_version", "must be an exact minor version such as 3.12 (got %q)", spec.PythonVersion)
	}
	return r.err()
}

// imageForm is python:X.Y with whatever the official images add, in any of its spellings.
var imageForm = regexp.MustCompile(`^(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io)/)?(?:library/)?python:(3\.(?:0|[1-9][0-9]?))(?:[.-][A-Za-z0-9_.-]*)?(?:@sha256:[0-9a-f]{64})?$`)

// imageVersion is the minor version that an image stands for.
func imageVersion(image string, mapped map[string]string) (string, bool) {
	if minor, ok := mapped[image]; ok {
		return minor, true
	}
	if m := imageForm.FindStringSubmatch(image); m != nil {
		return m[1], true
	}
	return "", false
}

// choose picks the interpreter that spec asks for.
func choose(spec executor.Spec, mapped map[string]string, inv inventory) (interpreter, error) {
	minor, field := spec.PythonVersion, "python_version"
	if spec.Image != "" {
		of, ok := imageVersion(spec.Image, mapped)
		if !ok {
			return interpreter{}, executor.FieldErrorf(executor.Unimplemented, "docker_image", "the uv backend has no images: only python:X.Y… and those of backends.uv.image_map choose an interpreter")
		}
		if minor != "" && minor != of {
			return interpreter{}, executor.FieldErrorf(executor.Invalid, "docker_image", "stands for Python %s, and python_version says %s", of, minor)
		}
		if minor == "" {
			minor, field = of, "docker_image"
		}
	}
	i, ok := inv.find(minor)
	if !ok && minor == "" {
		return interpreter{}, executor.Errorf(executor.Unavailable, "no Python from 3.%d on is on this machine, or none can be reached by the uids that run programs: see python-executor doctor", oldestMinor)
	}
	if !ok {
		have := strings.Join(inv.minors(), ", ")
		return interpreter{}, executor.FieldErrorf(executor.Unimplemented, field, "Python %s is not on this machine; there is %s%s", minor, have, inv.hint(minor))
	}
	return i, nil
}
