package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
	dockerbackend "github.com/python-executor/python-executor/plugins/backend-docker"
	uvbackend "github.com/python-executor/python-executor/plugins/backend-uv"
	mcpfrontend "github.com/python-executor/python-executor/plugins/frontend-mcp"
)

// bundled lists what is linked in.
func bundled() app.Bundle {
	return app.Bundle{
		Version: version,
		Plugins: map[string]app.Plugin{
			"backend-uv": {
				Type:   "uv",
				Serve:  func(version string) { plugin.ServeBackend("uv", version, uvbackend.Factory) },
				Filled: uvFilled,
				UIDs:   uvUIDs,
				Check:  uvCheck,
				Doctor: uvDoctor,
			},
			"backend-docker": {
				Type:   "docker",
				Serve:  func(version string) { plugin.ServeBackend("docker", version, dockerbackend.Factory) },
				Filled: dockerFilled,
				Check:  dockerbackend.Check,
				Doctor: dockerDoctor,
			},
		},
		Frontends: map[string]func(string){
			"frontend-mcp": func(version string) { plugin.ServeFrontend("mcp", version, mcpfrontend.Factory) },
		},
		Runner: runner.Main,
	}
}

// uvFilled shows what a section means. A work folder that is not given follows the cache folder.
func uvFilled(section json.RawMessage) json.RawMessage {
	c := uvbackend.Default()
	c.WorkDir = ""
	if len(section) > 0 && json.Unmarshal(section, &c) != nil {
		return section
	}
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(c.CacheDir, "work")
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return section
	}
	return raw
}

// dockerFilled shows what a section means.
func dockerFilled(section json.RawMessage) json.RawMessage {
	c := dockerbackend.Default()
	if len(section) > 0 && json.Unmarshal(section, &c) != nil {
		return section
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return section
	}
	return raw
}

// uvConfig reads a section; what it leaves out is the plugin's to fill.
func uvConfig(section json.RawMessage) (uvbackend.Config, error) {
	var c uvbackend.Config
	if len(bytes.TrimSpace(section)) == 0 {
		return c, nil
	}
	return c, json.Unmarshal(section, &c)
}

// uvCheck finds what the plugin would refuse at its start, without starting it.
func uvCheck(name string, section json.RawMessage) error {
	var given, known map[string]json.RawMessage
	if len(section) > 0 {
		if err := json.Unmarshal(section, &given); err != nil {
			return executor.FieldErrorf(executor.Invalid, "backends."+name, "must be a section")
		}
	}
	_ = json.Unmarshal(uvFilled(nil), &known)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, ok := known[key]; !ok {
			return executor.FieldErrorf(executor.Invalid, "backends."+name+"."+key, "unknown key")
		}
	}
	c, err := uvConfig(section)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return executor.FieldErrorf(executor.Invalid, "backends."+name+"."+e.Field, "must be of another kind (got a %s)", e.Value)
	}
	if err != nil {
		return executor.FieldErrorf(executor.Invalid, "backends."+name, "%v", err)
	}
	if err := c.Validate(); err != nil {
		return renamed(err, name)
	}
	return renamed(c.CheckUsers(context.Background()), name)
}

// renamed makes an error about backends.uv one about the entry's own name.
func renamed(err error, name string) error {
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || name == "uv" {
		return err
	}
	lines := make([]string, len(e.Fields))
	fields := slices.Clone(e.Fields)
	for i := range fields {
		fields[i].Field = "backends." + name + strings.TrimPrefix(fields[i].Field, "backends.uv")
		lines[i] = fields[i].Field + ": " + fields[i].Message
	}
	return &executor.Error{Code: e.Code, Message: strings.Join(lines, "\n"), Fields: fields}
}

// uvUIDs are the users that a section runs programs as. A section that cannot be read is refused elsewhere.
func uvUIDs(section json.RawMessage) (first, last int, ok bool) {
	c, err := uvConfig(section)
	if err != nil {
		return 0, 0, false
	}
	return c.UIDs()
}

func uvDoctor(ctx context.Context, section json.RawMessage) []app.Finding {
	c, err := uvConfig(section)
	if err != nil {
		return []app.Finding{{Level: app.LevelError, Topic: "config", Message: err.Error()}}
	}
	var findings []app.Finding
	for _, f := range uvbackend.Doctor(ctx, c) {
		findings = append(findings, app.Finding{Level: app.Level(f.Level), Topic: f.Topic, Message: f.Message, Remedy: f.Remedy})
	}
	return findings
}

func dockerDoctor(ctx context.Context, section json.RawMessage) []app.Finding {
	c := dockerbackend.Default()
	if len(section) > 0 {
		if err := json.Unmarshal(section, &c); err != nil {
			return []app.Finding{{Level: app.LevelError, Topic: "config", Message: err.Error()}}
		}
	}
	var findings []app.Finding
	for _, f := range dockerbackend.Doctor(ctx, c) {
		findings = append(findings, app.Finding{Level: app.Level(f.Level), Topic: f.Topic, Message: f.Message, Remedy: f.Remedy})
	}
	return findings
}
