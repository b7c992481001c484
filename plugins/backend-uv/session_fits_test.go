package uvbackend

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// TestASessionInLimitsThatCannotHoldItsInterpreterIsInvalid extends SE-48, which is about Python and memory only.
func TestASessionInLimitsThatCannotHoldItsInterpreterIsInvalid(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	for _, c := range []struct {
		language    executor.Language
		memory      int64
		pids        int64
		field, want string
	}{
		{executor.LanguagePython, 15 << 20, 128, "config.memory_mb", "at least 16"},
		{executor.LanguagePython, 16 << 20, 1, "", ""},
		{executor.LanguageDefault, 1 << 20, 128, "config.memory_mb", "at least 16"},
		{executor.LanguageJavaScript, 63 << 20, 128, "config.memory_mb", "at least 64"},
		{executor.LanguageJavaScript, 64 << 20, 11, "config.pids", "at least 12"},
		{executor.LanguageJavaScript, 64 << 20, 12, "", ""},
		{executor.LanguageShell, 7 << 20, 128, "config.memory_mb", "at least 8"},
		{executor.LanguageShell, 8 << 20, 1, "config.pids", "at least 2"},
		{executor.LanguageShell, 8 << 20, 2, "", ""},
	} {
		if c.language != executor.LanguageDefault && b.languages[c.language] == "" && c.language != executor.LanguagePython {
			continue // this machine has no such interpreter
		}
		s := asked("ctx-1", executor.Spec{Language: c.language})
		s.Limits.MemoryBytes, s.Limits.PIDs = c.memory, c.pids
		_, err := b.OpenSession(t.Context(), s)
		if c.field == "" {
			if err != nil {
				t.Errorf("%s in %d MB with %d processes: %v", c.language, c.memory>>20, c.pids, err)
			}
			if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
				t.Error(err)
			}
			continue
		}
		isInvalid(t, err, c.field, c.want)
	}
}

// TestASessionWhoseImportsNeedMoreMemoryIsInvalid has a memory limit that only the imports exceed.
func TestASessionWhoseImportsNeedMoreMemoryIsInvalid(t *testing.T) {
	needtest.NeedRoot(t)
	b, w := indexed(t, map[string]any{"warm_sessions": -1})
	w.add("pyexec-fat", "1.0", map[string]string{"pyexec_fat.py": "x = b'x' * (200 << 20)\n"})
	s := asked("ctx-1", executor.Spec{Requirements: "pyexec-fat"})
	// The control group holds the sum of both limits.
	s.Preload, s.Limits.MemoryBytes, s.Limits.DiskBytes = []string{"pyexec_fat"}, 32<<20, 32<<20
	_, err := b.OpenSession(t.Context(), s)
	isInvalid(t, err, "config.memory_mb", "more than 32")
}

func isInvalid(t *testing.T, err error, field, want string) {
	t.Helper()
	e, ok := err.(*executor.Error) //nolint:errorlint // it is one, not about one
	if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != field || !strings.Contains(e.Fields[0].Message, want) {
		t.Errorf("got %v, want %s: %s", err, field, want)
	}
}
