//go:build !linux

package main

// supervise runs in this process: elsewhere no process can be the reaper of its descendants.
func supervise() int { return run() }
