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

// CheckPlugin starts the plugin at a path and checks the rules of the contract. An error means that no rule could be checked.
func CheckPlugin(ctx context.Context, o CheckOptions) (_ []Rule, err error) {
	for _, id := range o.Rules {
		if !slices.ContainsFunc(backendtest.Rules(), func(r [2]string) bool { return r[0] == id }) {
			return nil, executor.FieldErrorf(executor.Invalid, "--rule", "unknown rule %q", id)
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
	results, err := backendtest.CheckPlugin(ctx, plugin.LaunchOptions{
		Path: path, SHA256: o.SHA256, RunDir: run.path, Log: o.Log,
		Configure: plugin.Configure{Name: "check", Instance: newInstance(), Embedded: true, DataDir: data.path, Options: o.Section},
	}, backendtest.Options{Image: o.Image, Only: o.Rules})
	if err != nil {
		return nil, err
	}
	var rules []Rule
	for _, r := range results {
		rules = append(rules, Rule{ID: r.ID, Name: r.Name, Errors: r.Errors, Skipped: r.Skipped})
	}
	return rules, nil
}
