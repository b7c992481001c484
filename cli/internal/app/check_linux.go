package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// CheckPlugin starts the plugin at a path and tries the rules of the contract on it. An error means that it did not come
// as far as that.
func CheckPlugin(ctx context.Context, o CheckOptions) (_ []Rule, err error) {
	for _, id := range o.Rules {
		if !slices.ContainsFunc(backendtest.Rules(), func(r [2]string) bool { return r[0] == id }) {
			return nil, executor.FieldErrorf(executor.Invalid, "--rule", "there is no rule %q", id)
		}
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	run, err := newRunDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	data, err := newTemporary(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	p, err := plugin.Launch(ctx, plugin.LaunchOptions{
		Path: path, RunDir: run.path, Log: o.Log,
		Configure: plugin.Configure{Name: "check", Instance: newInstance(), Embedded: true, DataDir: data.path, Options: o.Section},
	})
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	var rules []Rule
	for _, r := range backendtest.Check(ctx, p.Backend(), backendtest.Options{Image: o.Image, Only: o.Rules}) {
		rules = append(rules, Rule{ID: r.ID, Name: r.Name, Errors: r.Errors, Skipped: r.Skipped})
	}
	return rules, bounded(ctx, p.Drain)
}
