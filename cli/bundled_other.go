//go:build !linux

package main

import "github.com/python-executor/python-executor/cli/internal/app"

// bundled is empty: programs run on Linux only, and here the binary is a client.
func bundled() app.Bundle { return app.Bundle{Version: version} }
