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

// loadChecked is loadConfig with the bundled plugins' own sections looked at too.
func (g *global) loadChecked() (config.Config, error) {
	c, err := g.loadConfig()
	if err != nil && !settings.IsInvalid(err) {
		return c, err
	}
	return c, joinInvalid(err, checkSections(g.bundle, c))
}

// joinInvalid makes one list of problems of two; either may be nil.
func joinInvalid(a, b error) error {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	all := &executor.Error{Code: executor.Invalid, Message: a.Error() + "\n" + b.Error()}
	for _, err := range []error{a, b} {
		if e, ok := errors.AsType[*executor.Error](err); ok {
			all.Fields = append(all.Fields, e.Fields...)
		}
	}
	return all
}

// checkSections has each bundled plugin look at its section.
func checkSections(bundle app.Bundle, c config.Config) error {
	var fields []executor.FieldError
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		if b.Path != "" {
			continue // only the plugin itself knows: plugin check, or serve
		}
		_, p, ok := bundle.ByType(b.TypeOr(name))
		var err error
		if !ok {
			err = executor.FieldErrorf(executor.Invalid, "backends."+name+".type", "no backend type %q is bundled (bundled: %s): give path and sha256 of a plugin", b.TypeOr(name), bundledTypes(bundle))
		} else if p.Check != nil {
			err = p.Check(name, b.Options)
		}
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
	for _, s := range settings.Strays(g.layers(), c) {
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

// showConfig prints what there is even if something in a plugin's section is wrong; a file that cannot be read as a
// configuration has nothing to show.
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
