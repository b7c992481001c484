package cmd

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func newConfig(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config check|show",
		Short: "Check or show the configuration",
		Args:  none,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check",
		Short: "Report every problem of the configuration; exit status 1 if there is one",
		Long: `Report every problem of the file and of the variables; exit status 1 if there is one. A variable that begins with
PYEXEC_ and sets nothing is a warning on standard error.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error { return checkConfig(g) },
	}, &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration: defaults, file, environment",
		Args:  none,
		RunE:  func(*cobra.Command, []string) error { return showConfig(g) },
	})
	return cmd
}

// loadChecked is loadConfig, but also checks the sections of the bundled plugins.
func (g *global) loadChecked() (config.Config, error) {
	c, err := g.loadConfig()
	if err != nil && !settings.IsInvalid(err) {
		return c, err
	}
	return c, joinInvalid(err, checkSections(g.bundle, c))
}

// joinInvalid joins the problems of errors, which may be nil.
func joinInvalid(errs ...error) error {
	var lines []string
	var fields []executor.FieldError
	for _, err := range errs {
		if err == nil {
			continue
		}
		lines = append(lines, err.Error())
		if e, ok := errors.AsType[*executor.Error](err); ok {
			fields = append(fields, e.Fields...)
		}
	}
	if lines == nil {
		return nil
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(lines, "\n"), Fields: fields}
}

// checkSections lets each bundled plugin check its section.
func checkSections(bundle app.Bundle, c config.Config) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		if b.Path != "" {
			continue // only the plugin itself can check it, in plugin check and serve
		}
		if _, p, ok := bundle.ByType(b.TypeOr(name)); !ok {
			errs = append(errs, executor.FieldErrorf(executor.Invalid, "backends."+name+".type", "unknown backend type %q (bundled: %s): give path and sha256 of a plugin", b.TypeOr(name), bundledTypes(bundle)))
		} else if p.Check != nil {
			errs = append(errs, p.Check(name, b.Options))
		}
	}
	return joinInvalid(errs...)
}

func bundledTypes(bundle app.Bundle) string {
	var types []string
	for _, p := range bundle.Plugins {
		types = append(types, p.Type)
	}
	slices.Sort(types)
	if len(types) == 0 {
		return "none on this system"
	}
	return strings.Join(types, ", ")
}

func checkConfig(g *global) error {
	c, err := g.loadChecked()
	if err != nil && !settings.IsInvalid(err) {
		return err
	}
	for _, s := range settings.UnusedVariables(g.layers(), c) {
		g.note("warning: %s", s)
	}
	if g.json {
		report := struct {
			OK       bool                  `json:"ok"`
			Problems []executor.FieldError `json:"problems"`
		}{err == nil, []executor.FieldError{}}
		if e, ok := errors.AsType[*executor.Error](err); ok {
			report.Problems = append(report.Problems, e.Fields...)
		}
		if printErr := printJSON(g.Out, report); printErr != nil || err == nil {
			return printErr
		}
		return exit.With(exit.Negative, nil)
	}
	if err != nil {
		return exit.With(exit.Negative, err)
	}
	_, err = g.Out.Write([]byte("ok\n"))
	return err
}

// showConfig prints the configuration even if a plugin's section has problems. It prints nothing if the file cannot be parsed.
func showConfig(g *global) error {
	c, err := g.loadConfig()
	if err != nil {
		return err
	}
	for name, b := range c.Backends {
		if _, p, ok := g.bundle.ByType(b.TypeOr(name)); ok && b.Path == "" && p.Filled != nil {
			b.Options = p.Filled(b.Options)
			c.Backends[name] = b
		}
	}
	write := settings.YAML
	if g.json {
		write = settings.JSON
	}
	raw, err := write(c)
	if err != nil {
		return err
	}
	if g.json {
		raw = append(raw, '\n')
	}
	_, err = g.Out.Write(raw)
	return err
}
