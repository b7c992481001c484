package cmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
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

func TestADurationInAServersLogHasItsUnit(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{false, true} {
		var log bytes.Buffer
		g := &global{IO: IO{Err: &log, ErrTerminal: terminal}}
		g.serverLog().Info("done", "duration", 1500*time.Millisecond)
		if !strings.Contains(log.String(), "1.5s") {
			t.Errorf("%s", log.String())
		}
	}
}
