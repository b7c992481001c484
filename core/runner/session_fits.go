package runner

import (
	"github.com/python-executor/python-executor/core/executor"
)

// leastLimits are the limits with which the interpreters of sessions come up, with their drivers and without preloaded modules.
// With less they are killed, or wait for ever for threads that they cannot start.
var leastLimits = map[executor.Language]struct{ memoryBytes, pids int64 }{
	executor.LanguagePython:     {memoryBytes: 16 << 20, pids: 1},
	executor.LanguageJavaScript: {memoryBytes: 64 << 20, pids: 12},
	executor.LanguageShell:      {memoryBytes: 8 << 20, pids: 2},
}

// SessionFits reports, as an error of code invalid that names the field and the lowest number, that limits cannot hold the
// interpreter of a session in language; nil: they can. Backends ask before they make a sandbox.
func SessionFits(language executor.Language, limits executor.Limits) error {
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	least := leastLimits[language]
	if limits.MemoryBytes > 0 && limits.MemoryBytes < least.memoryBytes {
		return executor.FieldErrorf(executor.Invalid, "config.memory_mb", "must be at least %d for a session in %s (got %d)", least.memoryBytes>>20, language, limits.MemoryBytes>>20)
	}
	if limits.PIDs > 0 && limits.PIDs < least.pids {
		return executor.FieldErrorf(executor.Invalid, "config.pids", "must be at least %d for a session in %s (got %d)", least.pids, language, limits.PIDs)
	}
	return nil
}
