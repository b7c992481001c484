package uvbackend

import (
	"errors"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestWhatCannotBeDoneIsRefusedByName(t *testing.T) {
	t.Parallel()
	none := executor.Capabilities{NetworkOn: true, Requirements: true, SystemInterpreter: true}
	all := none
	all.NetworkOff, all.Memory, all.Disk, all.CPU, all.PIDs, all.MemorySamples, all.HostDirectories = true, true, true, true, true, true, true
	for _, c := range []struct {
		name  string
		spec  executor.Spec
		can   executor.Capabilities
		code  executor.Code
		field string
	}{
		{"another language", executor.Spec{Language: executor.LanguageJavaScript}, all, executor.Unimplemented, "language"},
		{"shell code", executor.Spec{Language: executor.LanguageShell}, all, executor.Unimplemented, "language"},
		{"preparing an image", executor.Spec{PreCommands: []string{"true"}}, all, executor.Unimplemented, "pre_commands"},
		{"a session", executor.Spec{Session: "ctx-1"}, all, executor.Unimplemented, "session"},
		{"a host script", executor.Spec{Script: "/x"}, all, executor.Unimplemented, "script"},
		{"a memory limit", executor.Spec{Limits: executor.Limits{MemoryBytes: 1}}, none, executor.Unimplemented, "config.memory_mb"},
		{"a disk limit", executor.Spec{Limits: executor.Limits{DiskBytes: 1}}, none, executor.Unimplemented, "config.disk_mb"},
		{"a CPU weight", executor.Spec{Limits: executor.Limits{CPUShares: 2}}, none, executor.Unimplemented, "config.cpu_shares"},
		{"a process limit", executor.Spec{Limits: executor.Limits{PIDs: 1}}, none, executor.Unimplemented, "config.pids"},
		{"no network", executor.Spec{Network: executor.NetworkOff}, none, executor.Unimplemented, "config.network_disabled"},
		{"a network", executor.Spec{Network: executor.NetworkOn}, executor.Capabilities{NetworkOff: true}, executor.Unimplemented, "config.network_disabled"},
		{"memory samples", executor.Spec{SampleInterval: time.Second}, none, executor.Unimplemented, "sample_interval_seconds"},
		{"a host folder without rights to it", executor.Spec{HostDirectory: "/tmp"}, none, executor.Unimplemented, "host_directory"},
		{"a host folder that is not there", executor.Spec{HostDirectory: "/not/there"}, all, executor.Invalid, "host_directory"},
		{"a relative host folder", executor.Spec{HostDirectory: "tmp"}, all, executor.Invalid, "host_directory"},
		{"requirements for the system's interpreter", executor.Spec{Interpreter: executor.InterpreterSystem, Requirements: "six"}, all, executor.Invalid, "requirements_txt"},
		{"a version that is no minor version", executor.Spec{PythonVersion: "3.12.1"}, all, executor.Invalid, "python_version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, ok := errors.AsType[*executor.Error](refuse(c.spec, c.can, "no nftables"))
			if !ok || e.Code != c.code || len(e.Fields) != 1 || e.Fields[0].Field != c.field {
				t.Errorf("got %+v, want %s naming %s", e, c.code, c.field)
			}
		})
	}
	if err := refuse(executor.Spec{
		Limits: executor.Limits{MemoryBytes: 1, DiskBytes: 1, CPUShares: 2, PIDs: 1}, Network: executor.NetworkOff, PythonVersion: "3.12",
		SampleInterval: time.Second, HostDirectory: "/", Interpreter: executor.InterpreterSystem,
	}, all, ""); err != nil {
		t.Errorf("limits that can be enforced were refused: %v", err)
	}
	if err := refuse(executor.Spec{Network: executor.NetworkOn}, none, ""); err != nil {
		t.Errorf("defaults that are not enforced were refused: %v", err)
	}
}

func TestTheInterpreterIsChosenByVersionOrImage(t *testing.T) {
	t.Parallel()
	inv := inventory{
		byMinor:     map[string]interpreter{"3.9": {Path: "/9", Minor: "3.9"}, "3.12": {Path: "/12", Minor: "3.12"}},
		fallback:    interpreter{Path: "/9", Minor: "3.9"},
		unreachable: []unreachable{{Path: "/root/3.13.0/bin/python3.13", Version: "3.13.0", Why: "/root is closed", Remedy: "open it"}},
	}
	for _, c := range []struct {
		name  string
		spec  executor.Spec
		path  string
		code  executor.Code
		field string
	}{
		{"nothing asked", executor.Spec{}, "/9", "", ""},
		{"a version", executor.Spec{PythonVersion: "3.12"}, "/12", "", ""},
		{"an image", executor.Spec{Image: "python:3.12-slim"}, "/12", "", ""},
		{"a mapped image", executor.Spec{Image: "mine"}, "/12", "", ""},
		{"both, agreeing", executor.Spec{Image: "python:3.12", PythonVersion: "3.12"}, "/12", "", ""},
		{"both, not agreeing", executor.Spec{Image: "python:3.12", PythonVersion: "3.9"}, "", executor.Invalid, "docker_image"},
		{"another image", executor.Spec{Image: "ubuntu"}, "", executor.Unimplemented, "docker_image"},
		{"an image of a version that is not installed", executor.Spec{Image: "python:3.10"}, "", executor.Invalid, "docker_image"},
		{"a version that is not installed", executor.Spec{PythonVersion: "3.10"}, "", executor.Invalid, "python_version"},
		{"a version that cannot be used", executor.Spec{PythonVersion: "3.13"}, "", executor.Invalid, "python_version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i, err := choose(c.spec, map[string]string{"mine": "3.12"}, inv)
			if i.Path != c.path || executor.CodeOf(err) != c.code {
				t.Fatalf("got %q, %v", i.Path, err)
			}
			if e, ok := errors.AsType[*executor.Error](err); ok && e.Fields[0].Field != c.field {
				t.Errorf("fields are %+v", e.Fields)
			}
		})
	}
	if _, err := choose(executor.Spec{}, nil, inventory{}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("without any Python: %v", err)
	}
}
