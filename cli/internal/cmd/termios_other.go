//go:build !linux && !darwin

package cmd

// withoutSignals does nothing here, because the editor reads keys and not a stream.
func withoutSignals() {}

// holdTerminal does nothing here, because the editor restores the modes itself when it ends.
func holdTerminal() (giveBack func()) { return func() {} }
