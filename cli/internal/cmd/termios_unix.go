//go:build linux || darwin

package cmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// withoutSignals makes Ctrl-C a character of the terminal instead of a signal. The editor does that, too, but only after it
// has shown its prompt. A Ctrl-C before that would be a signal, which discards all typed input.
func withoutSignals() {
	fd := int(os.Stdin.Fd())
	m, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return // no terminal, no signals
	}
	m.Lflag &^= unix.ISIG
	_ = unix.IoctlSetTermios(fd, setTermios, m) // the editor reports errors of the terminal
}

// holdTerminal returns a function that restores the present modes of the terminal at standard input. It also works while a
// prompt of the editor, which cannot be cancelled, is about to set its own modes.
func holdTerminal() (giveBack func()) {
	stdin := int(os.Stdin.Fd())
	modes, err := unix.IoctlGetTermios(stdin, getTermios)
	if err != nil {
		return func() {}
	}
	terminal, err := unix.FcntlInt(uintptr(stdin), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	return func() {
		// After this, standard input is no terminal, so that the editor cannot change the modes again.
		if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			_ = replaceDescriptor(null, stdin)
			_ = unix.Close(null)
		}
		_ = unix.IoctlSetTermios(terminal, setTermios, modes) // an error means that the terminal is gone
		_ = unix.Close(terminal)
	}
}
