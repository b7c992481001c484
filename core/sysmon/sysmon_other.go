//go:build !linux

package sysmon

// Calm does nothing on this system.
func Calm() {}
