package cmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

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
		Args:  group,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Report every problem of the configuration; exit status 1 if there is one",
		Long: `Report every problem of the file, of the variables and of the flags, which are those of serve; exit status 1 if there is one. A
variable that begins with PYEXEC_ and sets nothing is a warning on standard error.`,
		Args: none,
	}
	checked := settingFlags(check.Flags())
	check.RunE = func(*cobra.Command, []string) error { return checkConfig(g, g.layersWith(checked)) }
	var origins bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration: defaults, file, environment, flags",
		Long: `Print the effective configuration, as a file that --config takes: defaults, then the file (YAML, JSON or TOML), then the environment,
then flags, which are those of serve. With --origin print a line for each key: its value, and whether it is a default or which line,
variable or flag sets it.`,
		Args: none,
	}
	shown := settingFlags(show.Flags())
	show.Flags().BoolVar(&origins, "origin", false, "print for each key where its value comes from")
	show.RunE = func(*cobra.Command, []string) error {
		if origins {
			return showOrigins(g, g.layersWith(shown))
		}
		return showConfig(g, g.layersWith(shown))
	}
	cmd.AddCommand(check, show)
	return cmd
}

// loadChecked is settings.Load, but also checks the sections of the bundled plugins.
func (g *global) loadChecked(from settings.Options) (config.Config, error) {
	c, err := settings.Load(from)
	if err != nil && !settings.IsInvalid(err) {
		return c, err
	}
	return c, joinInvalid(err, settings.Placed(from, checkSections(g.bundle, c)))
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
			errs = append(errs, unknownType(bundle, name, b))
		} else if p.Check != nil {
			errs = append(errs, p.Check(name, b.Options))
		}
	}
	return joinInvalid(errs...)
}

// unknownType says that no bundled plugin has the type of an entry, which may be the entry's name.
func unknownType(bundle app.Bundle, name string, b config.Backend) error {
	var types []string
	for _, p := range bundle.Plugins {
		types = append(types, p.Type)
	}
	slices.Sort(types)
	bundled, field, suggestion := strings.Join(types, ", "), "backends."+name, ""
	if len(types) == 0 {
		bundled = "none on this system"
	}
	if b.Type != "" {
		field += ".type"
	}
	if near := executor.Nearest(b.TypeOr(name), types); near != "" {
		suggestion = ": did you mean " + near + "?"
	}
	return executor.FieldErrorf(executor.Invalid, field, "must be a bundled type (%s), unless path and sha256 name a plugin (got %q)%s", bundled, b.TypeOr(name), suggestion)
}

func checkConfig(g *global, from settings.Options) error {
	c, err := g.loadChecked(from)
	if err != nil && !settings.IsInvalid(err) {
		return err
	}
	for _, s := range settings.UnusedVariables(from, c) {
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

// loadFilled is settings.Load with the defaults of the bundled plugins in their sections.
func (g *global) loadFilled(from settings.Options) (config.Config, error) {
	c, err := settings.Load(from)
	if err != nil {
		return c, err
	}
	for name, b := range c.Backends {
		if _, p, ok := g.bundle.ByType(b.TypeOr(name)); ok && b.Path == "" && p.Filled != nil {
			b.Options = p.Filled(b.Options)
			c.Backends[name] = b
		}
	}
	return c, nil
}

// showConfig prints the configuration even if a plugin's section has problems. It prints nothing if the file cannot be parsed.
func showConfig(g *global, from settings.Options) error {
	c, err := g.loadFilled(from)
	if err != nil {
		return err
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

// showOrigins prints where the value of each key comes from.
func showOrigins(g *global, from settings.Options) error {
	c, err := g.loadFilled(from)
	if err != nil {
		return err
	}
	origins, err := settings.Origins(from, c)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(g.Out, origins)
	}
	t := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tORIGIN")
	for _, o := range origins {
		fmt.Fprintf(t, "%s\t%s\t%s\n", o.Key, o.Value, o.Origin)
	}
	return t.Flush()
}
