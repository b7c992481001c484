//go:build !linux

package sysmon

// Calm does nothing on this system.
func Calm() {}

// ShortenSlices does nothing on this system.
func ShortenSlices() {}
