// Package runner is the small agent inside a Sandbox and the host's end of it.
package runner
