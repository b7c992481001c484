package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/cli/internal/app"
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

func TestFlagsOfServeWinOverTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("backend: a\nbackends: {a: {type: uv}, b: {type: uv}}\ndata_dir: /from/file\nhttp: {bind: 127.0.0.1:1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGlobal(IO{}, app.Bundle{})
	var got *serveOptions
	cmd := newServe(g, func(_ context.Context, o *serveOptions) error {
		got = o
		return nil
	})
	g.register(cmd.PersistentFlags())
	cmd.SetArgs([]string{"--config", file, "--bind", "127.0.0.1:2", "--pprof-bind", "127.0.0.1:3", "--allow-unauthenticated", "--data-dir", "/from/flag", "--backend", "b"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := got.config()
	if err != nil || c.HTTP.Bind != "127.0.0.1:2" || c.HTTP.PprofBind != "127.0.0.1:3" || !c.HTTP.AllowUnauthenticated || c.DataDir != "/from/flag" || c.Backend != "b" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestServeUntilEOFStopsWithItsStandardInput(t *testing.T) {
	t.Parallel()
	in, writer := io.Pipe()
	ctx := untilEOF(t.Context(), in)
	if _, err := writer.Write([]byte("input is ignored")); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errEOF) {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
}
