package executor

import "slices"

// Unsupported returns the fields of s that ask for what a backend with these Capabilities cannot do or enforce. A field whose
// value only the backend can judge, such as docker_image, is not among them.
func (c Capabilities) Unsupported(s Spec) []string {
	language := s.Language
	if language == LanguageDefault {
		language = LanguagePython
	}
	// A backend that names no language is taken to speak Python. A command is in no language; a Session has its own.
	speaks := slices.Contains(c.Languages, language) || len(c.Languages) == 0 && language == LanguagePython
	inLanguage := len(s.Command) == 0 && s.Script == "" && (s.Session == "" || s.Language != LanguageDefault)
	var fields []string
	for _, f := range []struct {
		name       string
		asked, can bool
	}{
		{"language", inLanguage, speaks},
		{"command", len(s.Command) > 0, c.Commands},
		{"requirements_txt", s.Requirements != "", c.Requirements},
		{"pre_commands", len(s.PreCommands) > 0, c.PreCommands},
		{"interpreter", s.Interpreter == InterpreterSystem, c.SystemInterpreter},
		{"outputs", len(s.Outputs) > 0, c.Artifacts},
		{"outputs_changed", s.OutputsChanged, c.Artifacts},
		{"sample_interval_seconds", s.SampleInterval > 0, c.MemorySamples},
		{"script", s.Script != "", c.Scripts},
		{"host_directory", s.HostDirectory != "", c.HostDirectories},
		{"session", s.Session != "", c.Sessions},
		{"config.network_disabled", s.Network == NetworkOff && !c.NetworkOff || s.Network == NetworkOn && !c.NetworkOn, false},
		{"config.memory_mb", s.Limits.MemoryBytes != 0, c.Memory},
		{"config.disk_mb", s.Limits.DiskBytes != 0, c.Disk},
		{"config.cpu_shares", s.Limits.CPUShares != 0, c.CPU},
		{"config.cpu_seconds", s.Limits.CPUTime != 0, c.CPUTime},
		{"config.pids", s.Limits.PIDs != 0, c.PIDs},
	} {
		if f.asked && !f.can {
			fields = append(fields, f.name)
		}
	}
	return fields
}
