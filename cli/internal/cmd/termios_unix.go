//go:build linux || darwin

package cmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// withoutSignals makes Ctrl-C a character of our terminal instead of a signal. The editor does that, too, but only when
// its prompt is on the screen already: what somebody types at once would be thrown away with the signal.
func withoutSignals() {
	fd := int(os.Stdin.Fd())
	m, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return // no terminal, no signals
	}
	m.Lflag &^= unix.ISIG
	_ = unix.IoctlSetTermios(fd, setTermios, m) // the editor says what is wrong with the terminal
}

// holdTerminal returns what gives the terminal of our standard input back as it is now, also to an editor that is still
// at work on it: its prompt cannot be called off, and may be just about to set modes of its own.
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
		// What comes after this meets no terminal at our standard input.
		if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			_ = replaceDescriptor(null, stdin)
			_ = unix.Close(null)
		}
		_ = unix.IoctlSetTermios(terminal, setTermios, modes) // a terminal that went away needs none
		_ = unix.Close(terminal)
	}
}
