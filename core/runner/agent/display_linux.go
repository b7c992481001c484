package agent

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
)

// maxDisplayLine bounds what a program says of one Display: its forms as base64, and their names.
const maxDisplayLine = executor.MaxDisplayData/3*4 + 64<<10

// driverSuffix follows displaying.file in the name of the file with the driver.
const driverSuffix = "-driver"

// displaying is what the runner knows of a program that displays. The program appends its Displays to a file in TMPDIR.
type displaying struct {
	file string // in TMPDIR; empty: the program does not display
	size int64  // of the text of the user, which the program puts into its main file
}

// makeDisplaying makes the main file, which is there, that of a program that displays. Nothing of the program runs yet.
func (x *execution) makeDisplaying() error {
	fd, err := unix.Openat(x.folder.FD(), sandbox.MainFile, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the main file: %w", err)
	}
	f := os.NewFile(uintptr(fd), sandbox.MainFile) //nolint:gosec // a descriptor
	defer f.Close()
	code, err := io.ReadAll(f)
	if err == nil {
		x.display = displaying{".displays-" + rand.Text(), int64(len(code))}
		place := path.Join(x.folder.Temp, x.display.file)
		_, err = f.WriteAt([]byte(drivers.Program(string(code), place+driverSuffix, place)), 0) // it is longer
	}
	return noRoom(err)
}

// writeDriver writes what a program that displays reads where no fork server has it. Nothing of the program runs yet.
func (x *execution) writeDriver() error {
	if x.display.file == "" {
		return nil
	}
	name := x.display.file + driverSuffix
	fd, err := unix.Openat(int(x.folder.TempRoot.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return noRoom(fmt.Errorf("make the driver: %w", err))
	}
	f := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
	_, err = f.WriteString(drivers.ProgramDriver())
	if uid := x.agent.Config.UID; uid != 0 {
		err = errors.Join(err, f.Chown(uid, x.agent.Config.GID)) // it removes the file
	}
	return noRoom(errors.Join(err, f.Close()))
}

func noRoom(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return sandbox.InvalidField("code", "must fit into disk_mb")
	}
	return err
}

// sendDisplays sends what a program has displayed, behind all of its output. The program has ended. What it has written is its own: a file
// that is none, or has something else in it, displays nothing.
func (x *execution) sendDisplays() {
	if x.display.file == "" {
		return
	}
	if x.before != nil {
		archive.Update(x.folder.FD(), x.before, sandbox.MainFile, x.display.size)
	}
	dir := int(x.folder.TempRoot.Fd())
	_ = unix.Unlinkat(dir, x.display.file+driverSuffix, 0) // the folder goes anyway, unless it is that of others; a copy has no driver
	fd, err := unix.Openat(dir, x.display.file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it has displayed nothing
	}
	f := os.NewFile(uintptr(fd), x.display.file) //nolint:gosec // a descriptor
	defer f.Close()
	_ = unix.Unlinkat(dir, x.display.file, 0)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 {
		return
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxDisplayLine)
	for n := 0; n < executor.MaxDisplays+2 && lines.Scan(); n++ {
		var a drivers.Answer
		switch err := json.Unmarshal(lines.Bytes(), &a); {
		case err != nil || a.Op == "display":
			x.sendDisplay(a)
		case a.Op == "done":
			x.res.DisplaysDropped += max(a.Dropped, 0)
		}
	}
	if lines.Err() != nil {
		x.res.DisplaysDropped++ // a line that is too long, and what follows it
	}
}

// sendDisplay sends a Display, or counts it among those that were dropped.
func (x *execution) sendDisplay(a drivers.Answer) {
	d, err := session.ParseDisplay(a.Display)
	var frame []byte
	if err == nil {
		frame, err = json.Marshal(d)
	}
	if err != nil || x.displays >= executor.MaxDisplays || len(frame) > protocol.MaxControl || x.isCancelled() {
		x.res.DisplaysDropped++ // waiting for room would delay the end of what was cancelled
		return
	}
	x.displays++
	_ = x.box.Event(protocol.FrameDisplay, frame) // without a listener the program has ended all the same
}
