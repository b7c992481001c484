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
