//go:build !linux && !darwin

package cmd

// withoutSignals has nothing to do where the editor asks for keys and not for a stream.
func withoutSignals() {}

// holdTerminal has nothing to hold: the editor's own modes are given back by its end.
func holdTerminal() (giveBack func()) { return func() {} }
