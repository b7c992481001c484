package batch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// diskPause is the time between two looks at the size of a preparation. What is written meanwhile is bounded only by the speed
// of the disk.
const diskPause = time.Second

// errFull is the cause that ends a preparation that is too large.
var errFull = errors.New("the preparation exceeds its disk limit")

// watchDisk calls stop when the folder of the preparation is too large.
func (p *preparation) watchDisk(ctx context.Context, stop context.CancelCauseFunc) {
	again := time.NewTicker(diskPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if p.overfull() {
				stop(errFull)
				return
			}
		}
	}
}

// overfull reports whether the folder of the preparation is larger than it may be.
func (p *preparation) overfull() bool {
	limit := p.in.Limits.DiskBytes
	return limit > 0 && usage(p.in.Folder) > limit
}

// usage returns how many bytes of the disk a folder takes. Files that go away meanwhile do not count.
func usage(folder string) (bytes int64) {
	_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went away
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// seal gives a folder and all in it to this process's user, so that programs can change nothing of it, and sets the mode of the
// folder itself. No untrusted process runs meanwhile.
func seal(folder string, mode os.FileMode) error {
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, os.Geteuid(), os.Getegid()); err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()&^0o022)
	})
	if err == nil {
		err = os.Chmod(folder, mode)
	}
	if err != nil {
		return executor.Errorf(executor.Internal, "folder: %w", err)
	}
	return nil
}
