//go:build linux && embedrunner

package binary

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed runner.bin
var content []byte

// Open returns the runner as an anonymous, sealed file that can be executed as /proc/self/fd/<Fd>. ok is false if this
// binary carries none or the kernel gives no such file. The caller closes it, after the last start.
func Open() (f *os.File, ok bool) {
	f, err := memfd(content)
	return f, err == nil
}

// keptTime is how long the program of another build stays in a folder of OpenKept.
const keptTime = 7 * 24 * time.Hour

// OpenKept is Open that saves the copy into memory: a former call of this build has left the program in dir. stamp names the build and
// the boot, because a file that was not written to disk may have lost its content at the machine's end. The first call writes the file
// and returns the program in memory: a process that is being started at that moment may hold the file open for writing, and such a
// file cannot be executed. Others than the owner must not be able to write to dir.
func OpenKept(dir, stamp string) (f *os.File, ok bool) {
	path := filepath.Join(dir, keptPrefix+stamp)
	if f, err := openKept(path); err == nil {
		return f, true
	}
	_ = keep(dir, path) // without the file, the next call copies the program again
	return Open()
}

const keptPrefix = "runner-"

// openKept opens the program at path, if it can be executed and nobody else can have changed it.
func openKept(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Fstatfs(int(f.Fd()), &fs)); err == nil &&
		(st.Mode != unix.S_IFREG|0o700 || int(st.Uid) != os.Geteuid() || st.Size != int64(len(content)) || fs.Flags&unix.ST_NOEXEC != 0) {
		err = errors.New("not the program, or not executable")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// keep writes the program to path, and removes those that other builds wrote to dir long ago.
func keep(dir, path string) error {
	others, err := filepath.Glob(filepath.Join(dir, keptPrefix+"*"))
	for _, other := range others {
		if info, err := os.Lstat(other); err == nil && time.Since(info.ModTime()) > keptTime {
			_ = os.Remove(other) // the next call tries again
		}
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, keptPrefix+"*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o700), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Bytes returns the program for places where a file must be written (a container's volume); nil without one.
func Bytes() []byte { return content }

func memfd(program []byte) (*os.File, error) {
	const name = "python-executor-runner"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there is no MFD_EXEC and every memfd is executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(program); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Sealed, it stays what was embedded. Unsealed, it could not be executed while it is open for writing.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
