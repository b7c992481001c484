package main

import (
	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/batch"
	dockerbackend "github.com/python-executor/python-executor/plugins/backend-docker"
	nomadbackend "github.com/python-executor/python-executor/plugins/backend-nomad"
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
				Local:  uvbackend.Factory,
				Filled: uvbackend.Filled,
				UIDs:   uvbackend.SectionUIDs,
				Check:  uvbackend.Check,
				Doctor: uvbackend.Doctor,
			},
			"backend-docker": {
				Type:   "docker",
				Serve:  func(version string) { plugin.ServeBackend("docker", version, dockerbackend.Factory) },
				Filled: dockerbackend.Filled,
				Check:  dockerbackend.Check,
				Doctor: dockerbackend.Doctor,
			},
			"backend-nomad": {
				Type:   "nomad",
				Serve:  func(version string) { plugin.ServeBackend("nomad", version, nomadbackend.Factory) },
				Filled: nomadbackend.Filled,
				Check:  nomadbackend.Check,
				Doctor: nomadbackend.Doctor,
			},
		},
		Frontends: map[string]func(string){
			"frontend-mcp": func(version string) { plugin.ServeFrontend("mcp", version, mcpfrontend.Factory) },
		},
		Runner: batch.Main,
	}
}
