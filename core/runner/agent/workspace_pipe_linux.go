package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// workspacePipe is a pipe that the host opens from outside, by its name in /proc, to write one Workspace into.
type workspacePipe struct {
	inside *os.File
	// outside is the end that the host opens. The runner closes its own copy when the host has opened it.
	outside int
}

func newWorkspacePipe() (*workspacePipe, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("workspace pipe: %w", err)
	}
	return &workspacePipe{os.NewFile(uintptr(p[0]), "workspace"), p[1]}, nil //nolint:gosec // a descriptor
}

// enter returns the end to read from, which belongs to the caller. Reading ends when the host closes its own end. It returns
// nil if d is nil or was used.
func (d *workspacePipe) enter() *os.File {
	if d == nil || d.inside == nil {
		return nil
	}
	f := d.inside
	d.inside = nil
	_ = unix.Close(d.outside) // nothing was written by us
	return f
}
