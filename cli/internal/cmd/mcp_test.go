package cmd

import (
	"log/slog"
	"testing"

	"github.com/python-executor/python-executor/core/config"
)

func TestTheSpecificationsVariablesMakeMCPLog(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		verbose  bool
		variable string
		shell    config.MCPShell
		want     slog.Level
	}{
		{false, "", config.MCPShell{MaxOutputBytes: 40_000}, slog.LevelError},
		{false, "INFO", config.MCPShell{}, slog.LevelInfo},
		{false, "debug", config.MCPShell{}, slog.LevelDebug},
		{true, "INFO", config.MCPShell{}, slog.LevelDebug},
		{false, "", config.MCPShell{LogFullOutput: true}, slog.LevelInfo},
		{false, "", config.MCPShell{LogOutputBytes: 10}, slog.LevelInfo},
	} {
		if got := mcpLevel(test.verbose, test.variable, test.shell); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
