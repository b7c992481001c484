package runner

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// door is the runner's end of what DoorOpener is about. It takes one Workspace.
type door struct {
	inside *os.File
	// outside is the end for the host to open; our own is closed when it has done so.
	outside int
}

func newDoor() (*door, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	return &door{os.NewFile(uintptr(p[0]), "workspace"), p[1]}, nil //nolint:gosec // a descriptor
}

// enter is the end to read from, which belongs to the caller: it ends when the host closes its own. d may be nil.
func (d *door) enter() *os.File {
	if d == nil || d.inside == nil {
		return nil
	}
	f := d.inside
	d.inside = nil
	_ = unix.Close(d.outside) // nothing was written by us
	return f
}
