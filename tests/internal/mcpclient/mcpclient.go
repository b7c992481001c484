// Package mcpclient installs the official Python client of MCP, pinned, once into the cache.
package mcpclient

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	client = "mcp==2.3.0"
	// peer is the framework of the server that the benchmark compares with.
	peer = "fastmcp==4.1.2"
)

// Python returns the interpreter of a venv that has the client, and with server the peer's framework.
func Python(server bool) (string, error) {
	name, packages := "mcp-venv-2.3.0", []string{client}
	if server {
		name, packages = "mcp-venv-2.3.0-peer-4.1.2", append(packages, peer)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "python-executor", name)
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(filepath.Join(venv, "complete")); err == nil {
		return python, nil
	}
	if out, err := exec.Command("python3", "-m", "venv", "--clear", venv).CombinedOutput(); err != nil {
		return "", fmt.Errorf("venv: %w: %s", err, out)
	}
	if out, err := exec.Command(python, append([]string{"-m", "pip", "install", "-q"}, packages...)...).CombinedOutput(); err != nil { //nolint:gosec // constants
		return "", fmt.Errorf("pip: %w: %s", err, out)
	}
	return python, os.WriteFile(filepath.Join(venv, "complete"), nil, 0o600)
}
