package cmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

type doctorOptions struct{ g *global }

func newDoctor(g *global, runF func(context.Context, *doctorOptions) error) *cobra.Command {
	o := &doctorOptions{g: g}
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what was found, what is enforced, what is missing and how to get it",
		Long: `Look at this machine, or with --server at the server: what was found, what is enforced, what is missing and how to
get it. Exit status 1 if something does not work.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
}

func (o *doctorOptions) run(ctx context.Context) error {
	var findings []app.Finding
	if o.g.server != "" {
		findings = o.server(ctx)
	} else {
		findings = o.local(ctx)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := o.print(findings); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f app.Finding) bool { return f.Level == app.LevelError }) {
		return exit.With(exit.Negative, nil)
	}
	return nil
}

// server asks the server about itself.
func (o *doctorOptions) server(ctx context.Context) []app.Finding {
	svc, err := o.g.openServer("")
	var infos []executor.Info
	if err == nil {
		infos, err = svc.Backends(ctx)
	}
	if err != nil {
		f := app.Finding{Level: app.LevelError, Topic: "server", Message: o.g.server + ": " + err.Error()}
		switch executor.CodeOf(err) {
		case executor.Unauthenticated, executor.Denied:
			f.Remedy = "set PYEXEC_TOKEN to a token of that server"
		default:
			f.Remedy = "check --server and that `python-executor serve` runs there"
		}
		return []app.Finding{f}
	}
	return append([]app.Finding{{Level: app.LevelOK, Topic: "server", Message: o.g.server + " answers"}}, told(infos)...)
}

// told is what backends say of themselves.
func told(infos []executor.Info) []app.Finding {
	var findings []app.Finding
	for _, info := range infos {
		f := app.Finding{Level: app.LevelOK, Topic: "backend " + info.Name, Message: "works; enforced: " + enforced(info.Capabilities)}
		if !info.Healthy {
			f.Level, f.Message = app.LevelError, orUnknown(info.Message)
		}
		findings = append(findings, f)
		for _, w := range info.Warnings {
			findings = append(findings, app.Finding{Level: app.LevelWarn, Topic: "backend " + info.Name, Message: w})
		}
	}
	return findings
}

// local looks at the configuration, and has every bundled backend look at the machine.
func (o *doctorOptions) local(ctx context.Context) []app.Finding {
	if runtime.GOOS != "linux" {
		return []app.Finding{{Level: app.LevelError, Topic: "system", Message: runtime.GOOS + " runs no programs here", Remedy: "use a server: --server or PYEXEC_SERVER"}}
	}
	c, err := o.g.loadChecked()
	if err != nil {
		var findings []app.Finding
		for line := range strings.SplitSeq(err.Error(), "\n") {
			findings = append(findings, app.Finding{Level: app.LevelError, Topic: "config", Message: line})
		}
		if !settings.IsInvalid(err) {
			findings[0].Remedy = "check --config and PYEXEC_CONFIG"
			return findings
		}
		findings[len(findings)-1].Remedy = "configs/default.yaml explains every key"
		return findings
	}
	source := "defaults and environment"
	if o.g.config != "" {
		source = o.g.config
	}
	findings := []app.Finding{{Level: app.LevelOK, Topic: "config", Message: source}, dataDirFinding(c.DataDir)}
	for _, s := range settings.Strays(o.g.layers(), c) {
		findings = append(findings, app.Finding{Level: app.LevelWarn, Topic: "config", Message: s.String()})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		findings = append(findings, o.backend(ctx, name, c.Backends[name])...)
	}
	return findings
}

func (o *doctorOptions) backend(ctx context.Context, name string, b config.Backend) []app.Finding {
	topic := "backend " + name
	if b.Path != "" {
		return []app.Finding{externalFinding(topic, b)}
	}
	_, p, ok := o.g.bundle.ByType(b.TypeOr(name))
	if !ok || p.Doctor == nil {
		return nil
	}
	findings := p.Doctor(ctx, b.Options)
	for i := range findings {
		findings[i].Topic = name + " " + findings[i].Topic
	}
	return findings
}

// externalFinding says whether an external plugin is the program that the configuration means; it starts nothing.
func externalFinding(topic string, b config.Backend) app.Finding {
	f := app.Finding{Level: app.LevelOK, Topic: topic, Message: b.Path, Remedy: "python-executor plugin check " + b.Path + " tries it"}
	digest, err := digestOf(b.Path)
	switch {
	case err != nil:
		f.Level, f.Message, f.Remedy = app.LevelError, err.Error(), "set backends."+strings.TrimPrefix(topic, "backend ")+".path to the plugin's program"
	case digest != b.SHA256:
		f.Level, f.Message = app.LevelError, b.Path+" has another digest: "+digest
		f.Remedy = "if you trust that file, set backends." + strings.TrimPrefix(topic, "backend ") + ".sha256 to its digest"
	}
	return f
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the user's configuration names it
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// dataDirFinding says whether a server could keep its data; it makes nothing.
func dataDirFinding(dir string) app.Finding {
	f := app.Finding{Level: app.LevelOK, Topic: "data_dir", Message: dir}
	existing := dir
	for {
		info, err := os.Stat(existing)
		switch {
		case err == nil && !info.IsDir():
			f.Level, f.Message, f.Remedy = app.LevelError, existing+" is not a folder", "set data_dir to a folder"
			return f
		case err == nil:
			if !writable(existing) {
				f.Level, f.Message, f.Remedy = app.LevelWarn, dir+" cannot be made or written: serve will not start", "set data_dir (PYEXEC_DATA_DIR) to a folder of yours"
			}
			return f
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(existing) == existing:
			f.Level, f.Message, f.Remedy = app.LevelWarn, err.Error(), "set data_dir (PYEXEC_DATA_DIR) to a folder of yours"
			return f
		}
		existing = filepath.Dir(existing)
	}
}

func (o *doctorOptions) print(findings []app.Finding) error {
	if o.g.json {
		return printJSON(o.g.Out, map[string]any{"version": o.g.bundle.Version, "findings": findings})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "python-executor %s, %s/%s\n", o.g.bundle.Version, runtime.GOOS, runtime.GOARCH)
	for _, f := range findings {
		if o.g.quiet && f.Level == app.LevelOK {
			continue
		}
		fmt.Fprintf(&b, "%-6s %s: %s\n", f.Level, f.Topic, strings.ReplaceAll(f.Message, "\n", "\n       "))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "       → %s\n", f.Remedy)
		}
	}
	_, err := fmt.Fprint(o.g.Out, clean(b.String()))
	return err
}
