package sandbox

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// maxInodes bounds the kernel memory that empty files in a tmpfs take.
const maxInodes = 1 << 19

// Folder is the work folder of one Execution, and the folder for its temporary files.
type Folder struct {
	Path string // as programs know it
	// at is the runner's name of Path.
	at   string
	Root *os.File
	keep bool // it is the WorkRoot itself: emptied, not removed
	// Temp is TMPDIR. It lies outside of path.
	Temp     string
	TempRoot *os.File
	// shared reports whether Temp has files of others.
	shared bool
	// Disk holds the folders. It is nil if the machine's disk does.
	Disk *Disk
}

// MakeFolder makes the work folder, 0700 and owned by the program, and the folder for temporary files. d is nil without
// Config.Tmpfs.
func MakeFolder(cfg protocol.Config, d *Disk, diskBytes int64) (*Folder, error) {
	f := &Folder{Path: cfg.WorkRoot, keep: cfg.UseWorkRoot, Disk: d, Temp: cmp.Or(cfg.Temp, "/tmp"), shared: cfg.Temp == ""}
	var err error
	if !f.keep {
		err = f.make(cfg, diskBytes)
	}
	if f.at == "" {
		f.at = f.Path
	}
	if err == nil {
		f.Root, err = os.Open(f.at)
	}
	if err == nil {
		f.TempRoot, err = os.Open(f.view().at(f.Temp))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("work folder: %w", err), f.Remove())
	}
	return f, nil
}

func (f *Folder) make(cfg protocol.Config, diskBytes int64) error {
	if v := f.view(); v != nil {
		f.Path, f.at, f.Temp, f.shared = workPath, v.at(workPath), tempPath, false
		return f.Disk.fit(diskBytes)
	}
	// The name is short, because programs put sockets below the folder, whose paths are at most 107 bytes long.
	var name [4]byte
	_, _ = rand.Read(name[:]) // never fails (crypto/rand)
	f.Path = filepath.Join(cfg.WorkRoot, hex.EncodeToString(name[:]))
	dirs := []string{f.Path}
	if f.Disk == nil {
		f.Temp, f.shared = f.Path+"t", false
		dirs = append(dirs, f.Temp)
	} else if err := f.Disk.fit(diskBytes); err != nil {
		return err
	} else {
		f.Temp = f.Disk.temp()
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if cfg.UID != 0 {
			if err := own(dir, cfg); err != nil {
				return err
			}
		}
	}
	return nil
}

// own gives a folder to the program's uid.
func own(dir string, cfg protocol.Config) error {
	fd, err := archive.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fchown(fd, cfg.UID, cfg.GID), unix.Close(fd))
}

// fit makes an empty folder hold diskBytes, as far as that limit is enforced.
func (f *Folder) fit(diskBytes int64) error {
	if f.Disk == nil {
		return nil
	}
	return f.Disk.fit(diskBytes)
}

// view returns the root folder of the box that f lies in, or nil.
func (f *Folder) view() *view {
	if f.Disk == nil {
		return nil
	}
	return f.Disk.view
}

// Open opens the work folder for names that must not lead out of it.
func (f *Folder) Open() (*os.Root, error) { return os.OpenRoot(f.at) }

// Stat is os.Stat of a path as programs know it. It follows links as a program does.
func (f *Folder) Stat(path string) (fs.FileInfo, error) { return f.view().stat(path) }

// Reach makes what start names visible to the program, if a private folder hides it.
func (f *Folder) Reach(start protocol.Start) error {
	if f.Disk == nil {
		return nil
	}
	return f.Disk.reachAll(start)
}

// ReachOne makes a path of the machine visible to programs that run already, in a box. Elsewhere they see it, unless a private
// folder hides it.
func (f *Folder) ReachOne(path string) error {
	if f.view() == nil {
		return nil
	}
	return f.Disk.bind(binding{path: path, lent: true})
}

func (f *Folder) FD() int { return int(f.Root.Fd()) }

// Wipe removes all files of the program.
func (f *Folder) Wipe() error {
	err := archive.Empty(f.FD())
	switch {
	case f.Disk != nil:
		return errors.Join(err, f.Disk.wipe())
	case f.shared:
		return err
	}
	return errors.Join(err, archive.Empty(int(f.TempRoot.Fd())))
}

// Remove removes the folders with all that is in them. No process of the program is alive.
func (f *Folder) Remove() error {
	if f.Disk != nil {
		return errors.Join(f.close(), f.Disk.unmount())
	}
	var errs error
	if f.Root != nil && f.TempRoot != nil {
		errs = f.Wipe()
	}
	errs = errors.Join(errs, f.close())
	if f.keep {
		return errs
	}
	for _, dir := range []string{f.Path, f.Temp} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// close closes the descriptors.
func (f *Folder) close() error {
	var errs error
	for _, dir := range []**os.File{&f.Root, &f.TempRoot} {
		if *dir != nil {
			errs = errors.Join(errs, (*dir).Close())
			*dir = nil
		}
	}
	return errs
}
