package engine

import (
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// privileged records every field of s that p may not use.
func privileged(s executor.Spec, p executor.Principal, bad *problems) {
	if s.HostDirectory != "" && !p.Has(executor.ScopeTrusted) {
		bad.add("host_directory", "needs the scope %q", executor.ScopeTrusted)
	}
	if s.Script != "" && !p.Has(executor.ScopeScripts) {
		bad.add("script", "needs the scope %q", executor.ScopeScripts)
	}
}

// capable records every field of s that a backend with this Info cannot do or enforce.
func capable(s executor.Spec, info executor.Info, bad *problems) {
	c := info.Capabilities
	ask := func(asked, able bool, field string) {
		if asked && !able {
			bad.add(field, "backend %s cannot do this", info.Name)
		}
	}
	limit := func(asked, able bool, field string) {
		if asked && !able {
			bad.add(field, "backend %s cannot enforce this here (python-executor doctor says why)", info.Name)
		}
	}
	language := s.Language
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	// A command is in no language; a backend that names none is taken to speak Python.
	ask(len(s.Command) == 0 && s.Script == "",
		slices.Contains(c.Languages, language) || len(c.Languages) == 0 && language == executor.LanguagePython, "language")
	ask(len(s.Command) > 0, c.Commands, "command")
	ask(s.Requirements != "", c.Requirements, "requirements_txt")
	ask(len(s.PreCommands) > 0, c.PreCommands, "pre_commands")
	ask(s.Interpreter == executor.InterpreterSystem, c.SystemInterpreter, "interpreter")
	ask(len(s.Outputs) > 0, c.Artifacts, "outputs")
	ask(s.OutputsChanged, c.Artifacts, "outputs_changed")
	ask(s.SampleInterval > 0, c.MemorySamples, "sample_interval_seconds")
	ask(s.Script != "", c.Scripts, "script")
	ask(s.HostDirectory != "", c.HostDirectories, "host_directory")
	limit(s.Network == executor.NetworkOff, c.NetworkOff, "config.network_disabled")
	ask(s.Network == executor.NetworkOn, c.NetworkOn, "config.network_disabled")
	limit(s.Limits.MemoryBytes != 0, c.Memory, "config.memory_mb")
	limit(s.Limits.DiskBytes != 0, c.Disk, "config.disk_mb")
	limit(s.Limits.CPUShares != 0, c.CPU, "config.cpu_shares")
	limit(s.Limits.PIDs != 0, c.PIDs, "config.pids")
	if s.Session != "" {
		bad.add("session", "sessions are not offered by this server")
	}
	has := func(version string) bool { return slices.Contains(c.PythonVersions, version) }
	if s.PythonVersion != "" && !has(s.PythonVersion) && (len(c.PythonVersions) > 0 || !c.Images) {
		bad.add("python_version", "backend %s has no Python %s (it has %v)", info.Name, s.PythonVersion, c.PythonVersions)
	}
	if s.Image != "" && !c.Images && !has(imageVersion(s.Image)) && !slices.Contains(info.Images, s.Image) {
		bad.add("docker_image", "backend %s has no images: only python:VERSION is understood, with a version of %v", info.Name, c.PythonVersions)
	}
}
