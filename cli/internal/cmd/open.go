package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/remote"
	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// target is a Service, embedded or on a server, with the function that closes it.
type target struct {
	executor.Service
	// ctx carries the Principal.
	ctx      context.Context
	embedded bool
	close    func() error
}

// openServer returns the server's Service. what is the name of the command, for an error.
func (g *global) openServer(what string) (executor.Service, error) {
	if g.server == "" {
		return nil, fmt.Errorf("%s needs a server: set --server or PYEXEC_SERVER (python-executor serve starts one)", what)
	}
	return remote.New(g.server, g.token, "python-executor/"+g.bundle.Version, func() {
		if !g.quiet {
			fmt.Fprintln(g.Err, "python-executor: the connection to the server was lost: waiting for the server")
		}
	})
}

// open returns the server's Service if a server is set, else the engine inside this process, with the named backends
// (none: the default one; all: every configured one). parallel is for cases: in this process so many run at
// once, as far as the configuration permits. 0 is for one program, whose output goes to the terminal.
func (g *global) open(ctx context.Context, backend string, all bool, parallel int64) (*target, error) {
	if g.server != "" {
		svc, err := g.openServer("")
		if err != nil {
			return nil, err
		}
		return &target{Service: svc, ctx: ctx, close: func() error { return nil }}, nil
	}
	from := g.layers()
	if backend != "" { // as with serve, a type needs no section
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.String("backend", "", "")
		if err := f.Set("backend", backend); err != nil {
			return nil, err
		}
		from = g.layersWith(map[string]*pflag.Flag{"backend": f.Lookup("backend")})
	}
	c, err := settings.Load(from)
	if err != nil {
		return nil, err
	}
	if !all {
		if c, err = only(c, backend); err != nil {
			return nil, err
		}
	}
	if !g.json && parallel == 0 {
		// Output that goes to the terminal needs no cap. Output that is collected for --json, or compared, keeps the default cap.
		c.Limits.Default.OutputBytes, c.Limits.Max.OutputBytes = executor.Unlimited, executor.Unlimited
	}
	local, err := app.Embedded(ctx, app.EmbeddedOptions{Config: c, Bundle: g.bundle, Parallel: int(parallel), Log: g.embeddedLog()})
	if err != nil {
		return nil, settings.Placed(from, err)
	}
	trusted := executor.WithPrincipal(ctx, executor.Principal{Owner: executor.LocalOwner, Scopes: executor.Scopes()})
	return &target{Service: local.Service, ctx: trusted, embedded: true, close: func() error {
		return local.Close(ctx)
	}}, nil
}

// only removes all backends except the named one.
func only(c config.Config, name string) (config.Config, error) {
	if name == "" {
		name = c.Backend
	}
	b, ok := c.Backends[name]
	if !ok {
		return c, executor.FieldErrorf(executor.Invalid, "backend", "unknown backend %q", name)
	}
	c.Backend, c.Backends = name, map[string]config.Backend{name: b}
	return c, nil
}

// layers returns the sources of the configuration.
func (g *global) layers() settings.Options {
	return settings.Options{File: g.config, Sections: g.bundle.Sections()}
}

// layersWith returns the sources of the configuration with flags, which are by key.
func (g *global) layersWith(flags map[string]*pflag.Flag) settings.Options {
	o := g.layers()
	o.Flags = flags
	return o
}

// embeddedLog returns a log of errors only, so that stderr has the program's output. With --verbose it logs everything.
func (g *global) embeddedLog() *slog.Logger {
	level := slog.LevelError
	if g.verbose {
		level = slog.LevelDebug
	}
	return g.textLog(level)
}

// textLog returns a log of text on standard error at level. With --quiet it logs nothing.
func (g *global) textLog(level slog.Level) *slog.Logger {
	w := g.Err
	if g.quiet {
		w = io.Discard
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
