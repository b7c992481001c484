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
	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func newDoctor(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Report interpreters and tools, enforced limits, and what is missing",
		Long: `Check this machine, or with --server the server. Report the interpreters and tools found, the limits enforced, and what is
missing, with a remedy. The exit status is 1 if something does not work.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), g) },
	}
}

func runDoctor(ctx context.Context, g *global) error {
	var findings []backend.Finding
	if g.server != "" {
		findings = serverFindings(ctx, g)
	} else {
		findings = localFindings(ctx, g)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := printFindings(g, findings); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f backend.Finding) bool { return f.Level == backend.LevelError }) {
		return exit.With(exit.Negative, nil)
	}
	return nil
}

// serverFindings returns the findings of the server.
func serverFindings(ctx context.Context, g *global) []backend.Finding {
	svc, err := g.openServer("")
	var infos []executor.Info
	if err == nil {
		infos, err = svc.Backends(ctx)
	}
	if err != nil {
		f := backend.Finding{Level: backend.LevelError, Topic: "server", Message: g.server + ": " + err.Error()}
		switch executor.CodeOf(err) {
		case executor.Unauthenticated, executor.Denied:
			f.Remedy = "set PYEXEC_TOKEN to a token of that server"
		default:
			f.Remedy = "check --server and that `python-executor serve` runs there"
		}
		return []backend.Finding{f}
	}
	return append([]backend.Finding{{Level: backend.LevelOK, Topic: "server", Message: g.server + " answers"}}, told(infos)...)
}

// told returns the findings from the Info of backends.
func told(infos []executor.Info) []backend.Finding {
	var findings []backend.Finding
	for _, info := range infos {
		f := backend.Finding{Level: backend.LevelOK, Topic: "backend " + info.Name, Message: "works; enforced: " + enforced(info.Capabilities)}
		if versions := info.Capabilities.PythonVersions; len(versions) > 0 {
			f.Message += "; Python " + strings.Join(versions, ", ")
		}
		if !info.Healthy {
			f.Level, f.Message = backend.LevelError, orUnknown(info.Message)
		}
		findings = append(findings, f)
		for _, w := range info.Warnings {
			findings = append(findings, backend.Finding{Level: backend.LevelWarn, Topic: "backend " + info.Name, Message: w})
		}
	}
	return findings
}

// localFindings checks the configuration, and lets every bundled backend check the machine.
func localFindings(ctx context.Context, g *global) []backend.Finding {
	if runtime.GOOS != "linux" {
		return []backend.Finding{{Level: backend.LevelError, Topic: "system", Message: runtime.GOOS + " runs no programs here", Remedy: "use a server: --server or PYEXEC_SERVER"}}
	}
	c, err := g.loadChecked(g.layers())
	if err != nil {
		var findings []backend.Finding
		for line := range strings.SplitSeq(err.Error(), "\n") {
			findings = append(findings, backend.Finding{Level: backend.LevelError, Topic: "config", Message: line})
		}
		if !settings.IsInvalid(err) {
			findings[0].Remedy = "check --config and PYEXEC_CONFIG"
			return findings
		}
		findings[len(findings)-1].Remedy = "`python-executor config show` prints every key, with --config of a file that is correct or without"
		return findings
	}
	source := "defaults and environment"
	if g.config != "" {
		source = g.config
	}
	findings := []backend.Finding{{Level: backend.LevelOK, Topic: "config", Message: source}, dataDirFinding(c.DataDir)}
	for _, s := range settings.UnusedVariables(g.layers(), c) {
		findings = append(findings, backend.Finding{Level: backend.LevelWarn, Topic: "config", Message: s.String()})
	}
	findings = append(findings, app.WorkerFindings(c)...)
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		findings = append(findings, backendFindings(ctx, g, name, c.Backends[name])...)
	}
	return findings
}

func backendFindings(ctx context.Context, g *global, name string, b config.Backend) []backend.Finding {
	topic := "backend " + name
	if b.Path != "" {
		return []backend.Finding{externalFinding(topic, b)}
	}
	_, p, ok := g.bundle.ByType(b.TypeOr(name))
	if !ok || p.Doctor == nil {
		return nil
	}
	findings := p.Doctor(ctx, b.Options)
	for i := range findings {
		findings[i].Topic = name + " " + findings[i].Topic
	}
	return findings
}

// externalFinding checks the path and the hash of an external plugin. It does not start the plugin.
func externalFinding(topic string, b config.Backend) backend.Finding {
	f := backend.Finding{Level: backend.LevelOK, Topic: topic, Message: b.Path, Remedy: "python-executor plugin check " + b.Path + " tries it"}
	digest, err := digestOf(b.Path)
	switch {
	case err != nil:
		f.Level, f.Message, f.Remedy = backend.LevelError, err.Error(), "set backends."+strings.TrimPrefix(topic, "backend ")+".path to the plugin's program"
	case digest != b.SHA256:
		f.Level, f.Message = backend.LevelError, b.Path+" has another digest: "+digest
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

// dataDirFinding checks whether a server could write its data folder. It creates nothing.
func dataDirFinding(dir string) backend.Finding {
	f := backend.Finding{Level: backend.LevelOK, Topic: "data_dir", Message: dir}
	existing := dir
	for {
		info, err := os.Stat(existing)
		switch {
		case err == nil && !info.IsDir():
			f.Level, f.Message, f.Remedy = backend.LevelError, existing+" is not a folder", "set data_dir to a folder"
			return f
		case err == nil:
			if err := app.DataDirShared(dir, info.Mode().Perm()); existing == dir && err != nil {
				f.Level, f.Message, f.Remedy = backend.LevelWarn, err.Error()+": serve will not start", "set data_dir (PYEXEC_DATA_DIR) to a folder of its own"
			} else if !writable(existing) {
				f.Level, f.Message, f.Remedy = backend.LevelWarn, dir+" cannot be made or written: serve will not start", "set data_dir (PYEXEC_DATA_DIR) to a folder of yours"
			}
			return f
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(existing) == existing:
			f.Level, f.Message, f.Remedy = backend.LevelWarn, err.Error(), "set data_dir (PYEXEC_DATA_DIR) to a folder of yours"
			return f
		}
		existing = filepath.Dir(existing)
	}
}

func printFindings(g *global, findings []backend.Finding) error {
	if g.json {
		return printJSON(g.Out, map[string]any{"version": g.bundle.Version, "findings": findings})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "python-executor %s, %s/%s\n", g.bundle.Version, runtime.GOOS, runtime.GOARCH)
	for _, f := range findings {
		if g.quiet && f.Level == backend.LevelOK {
			continue
		}
		fmt.Fprintf(&b, "%-6s %s: %s\n", f.Level, f.Topic, strings.ReplaceAll(f.Message, "\n", "\n       "))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "       → %s\n", f.Remedy)
		}
	}
	_, err := fmt.Fprint(g.Out, clean(b.String()))
	return err
}
