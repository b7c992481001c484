package uvbackend

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// refuse returns an error if spec cannot run on a backend with the capabilities can. noWayOut tells why programs cannot have a
// network.
func refuse(spec executor.Spec, can executor.Capabilities, noWayOut string) error {
	network := "cannot be enforced on this machine: the backend is not root, and user namespaces do not work"
	if spec.Network == executor.NetworkOn {
		network = "programs cannot have a network of their own on this machine, and backends.uv.network is not host: " + noWayOut
	}
	p := backend.CheckSpec(spec, can, map[string]string{
		"script":                  "the uv backend runs no host scripts",
		"config.memory_mb":        "cannot be enforced on this machine: no memory control group is delegated to the backend",
		"config.disk_mb":          "cannot be enforced on this machine: no tmpfs can be mounted",
		"config.cpu_shares":       "cannot be enforced on this machine: no CPU control group is delegated to the backend",
		"config.pids":             "cannot be enforced on this machine: no process control group is delegated to the backend",
		"config.network_disabled": network,
		"host_directory":          "programs run under uids of their own, which have no rights to it: set backends.uv.isolation to none",
	})
	backend.CheckCommands(p, spec.PreCommands)
	if dir := spec.HostDirectory; dir != "" && can.HostDirectories {
		info, err := os.Stat(dir)
		p.Require(filepath.IsAbs(dir) && err == nil && info.IsDir(), "host_directory", "must be an absolute path of a folder")
	}
	return p.Err()
}

// imageForm matches python:X.Y with any suffix of the official images, with or without the registry's names.
var imageForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io)/)?(?:library/)?python:(3\.(?:0|[1-9][0-9]?))(?:[.-][A-Za-z0-9_.-]*)?(?:@sha256:[0-9a-f]{64})?$`)
})

// imageVersion returns the minor version that an image stands for.
func imageVersion(image string, mapped map[string]string) (string, bool) {
	if minor, ok := mapped[image]; ok {
		return minor, true
	}
	if m := imageForm().FindStringSubmatch(image); m != nil {
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
			return interpreter{}, executor.FieldErrorf(executor.Unimplemented, "docker_image", "must be python:X.Y… or an image of backends.uv.image_map, because the uv backend has no images (got %q)", spec.Image)
		}
		if minor != "" && minor != of {
			return interpreter{}, executor.FieldErrorf(executor.Invalid, "docker_image", "must be an image of Python %s, which python_version names (got an image of Python %s)", minor, of)
		}
		if minor == "" {
			minor, field = of, "docker_image"
		}
	}
	i, ok := inv.find(minor)
	if !ok && minor == "" {
		return interpreter{}, executor.Errorf(executor.Unavailable, "this machine has no Python from 3.%d on that the uids of programs can use: see python-executor doctor", oldestMinor)
	}
	if !ok {
		have := strings.Join(inv.minors(), ", ")
		return interpreter{}, executor.FieldErrorf(executor.Invalid, field, "must name one of the Python versions %s of this machine (got %q)%s", have, minor, inv.hint(minor))
	}
	return i, nil
}
