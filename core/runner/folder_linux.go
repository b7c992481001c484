package runner

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxInodes bounds the kernel memory that a tmpfs full of empty files takes.
const maxInodes = 1 << 19

// folder is the work folder of one Execution, with the folder for its temporary files.
type folder struct {
	path string
	root *os.File
	keep bool // it is the WorkRoot itself: emptied, not removed
	// temp is TMPDIR. It lies outside of path.
	temp     string
	tempRoot *os.File
	// shared: temp has files that are not the program's.
	shared bool
	// disk holds it; nil: the machine's.
	disk *disk
}

// makeFolder makes the work folder, 0700 and the program's own, and the one for temporary files. d is nil without
// Config.Tmpfs.
func makeFolder(cfg Config, d *disk, diskBytes int64) (*folder, error) {
	f := &folder{path: cfg.WorkRoot, keep: cfg.UseWorkRoot, disk: d, temp: cmp.Or(cfg.Temp, "/tmp"), shared: cfg.Temp == ""}
	var err error
	if !f.keep {
		err = f.make(cfg, diskBytes)
	}
	if err == nil {
		f.root, err = os.Open(f.path)
	}
	if err == nil {
		f.tempRoot, err = os.Open(f.temp)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("work folder: %w", err), f.remove())
	}
	return f, nil
}

func (f *folder) make(cfg Config, diskBytes int64) error {
	// The name is short, because programs put sockets below it, whose paths may have 107 bytes.
	var name [4]byte
	_, _ = rand.Read(name[:]) // never fails (crypto/rand)
	f.path = filepath.Join(cfg.WorkRoot, hex.EncodeToString(name[:]))
	dirs := []string{f.path}
	if f.disk == nil {
		f.temp, f.shared = f.path+"t", false
		dirs = append(dirs, f.temp)
	} else if err := f.disk.fit(diskBytes); err != nil {
		return err
	} else {
		f.temp = f.disk.temp()
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

// own gives a folder to the program's user.
func own(dir string, cfg Config) error {
	fd, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fchown(fd, cfg.UID, cfg.GID), unix.Close(fd))
}

// fit makes an empty folder hold diskBytes, as far as its limit is enforced.
func (f *folder) fit(diskBytes int64) error {
	if f.disk == nil {
		return nil
	}
	return f.disk.fit(diskBytes)
}

// reach lets the program see what start names, should a private folder hide it.
func (f *folder) reach(start Start) error {
	if f.disk == nil {
		return nil
	}
	return f.disk.reachAll(start)
}

func (f *folder) fd() int { return int(f.root.Fd()) }

// wipe removes all files of the program.
func (f *folder) wipe() error {
	err := emptyFolder(f.fd())
	switch {
	case f.disk != nil:
		return errors.Join(err, f.disk.wipe())
	case f.shared:
		return err
	}
	return errors.Join(err, emptyFolder(int(f.tempRoot.Fd())))
}

// remove gives the folders and all in them back. None of the program's processes is alive.
func (f *folder) remove() error {
	if f.disk != nil {
		return errors.Join(f.close(), f.disk.clean())
	}
	var errs error
	if f.root != nil && f.tempRoot != nil {
		errs = f.wipe()
	}
	errs = errors.Join(errs, f.close())
	if f.keep {
		return errs
	}
	for _, dir := range []string{f.path, f.temp} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// close closes the descriptors.
func (f *folder) close() error {
	var errs error
	for _, dir := range []**os.File{&f.root, &f.tempRoot} {
		if *dir != nil {
			errs = errors.Join(errs, (*dir).Close())
			*dir = nil
		}
	}
	return errs
}

// emptyFolder removes everything below root, following no link. Trees deeper than flattenDepth are moved up and removed
// there, so that the depth a program chose costs no descriptors.
func emptyFolder(root int) error { return emptier{root: root}.run() }

// emptyAround is emptyFolder that leaves the places where something is mounted.
func emptyAround(root int) error { return emptier{root: root, around: true}.run() }

func (e emptier) run() error {
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails (crypto/rand)
	root := e.root
	e.prefix = ".flat-" + hex.EncodeToString(name[:]) + "-"
	if err := makeUsable(root); err != nil {
		return fmt.Errorf("empty work folder: %w", err)
	}
	for {
		e.moved = false
		if err := e.folder(root, 0); err != nil {
			return fmt.Errorf("empty work folder: %w", err)
		}
		if !e.moved {
			return nil
		}
	}
}

// makeUsable gives the owner of an open folder the rights back that a program may have taken away.
func makeUsable(dir int) error {
	var st unix.Stat_t
	err := unix.Fstat(dir, &st)
	if err == nil && st.Mode&0o700 != 0o700 {
		err = unix.Fchmod(dir, st.Mode&0o7777|0o700)
	}
	return err
}

const flattenDepth = 64

type emptier struct {
	root int
	// around: places of mounts stay, and the folders on the way to them.
	around bool
	// prefix begins the names of what was moved up. A program that knew it could stand in the way.
	prefix string
	count  int
	moved  bool
}

func (e *emptier) folder(dir, depth int) error {
	again, err := openDir(dir, ".")
	if errors.Is(err, unix.EACCES) && unix.Fchmod(dir, 0o700) == nil { // our own uid's folder
		again, err = openDir(dir, ".")
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(again), "folder") //nolint:gosec // a descriptor
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if err := e.entry(dir, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (e *emptier) entry(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || e.around && errors.Is(err, unix.EBUSY) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if depth >= flattenDepth {
		e.count++
		e.moved = true
		return unix.Renameat(dir, name, e.root, e.prefix+strconv.Itoa(e.count))
	}
	sub, err := openDir(dir, name)
	if errors.Is(err, unix.EACCES) {
		if err = permit(dir, name, unix.S_IFDIR, 0o700); err == nil {
			sub, err = openDir(dir, name)
		}
	}
	if err != nil {
		return err
	}
	err = errors.Join(makeUsable(sub), e.folder(sub, depth+1), unix.Close(sub))
	if err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if e.around && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY)) {
		return nil
	}
	return err
}
