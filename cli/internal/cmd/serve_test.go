package cmd

import (
	"log/slog"
	"testing"
)

func TestTheLevelOfAServersLog(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		quiet, verbose bool
		variable       string
		want           slog.Level
	}{
		{false, false, "", slog.LevelInfo}, {false, false, "INFO", slog.LevelInfo}, {false, false, "DEBUG", slog.LevelDebug},
		{false, false, "debug", slog.LevelDebug}, {false, true, "INFO", slog.LevelDebug}, {true, false, "DEBUG", slog.LevelWarn},
	} {
		if got := serverLevel(test.quiet, test.verbose, test.variable); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
