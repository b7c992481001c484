//go:build !linux && !darwin

package cmd

// withoutSignals has nothing to do where the editor asks for keys and not for a stream.
func withoutSignals() {}
