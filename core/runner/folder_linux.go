package runner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxInodes bounds the kernel memory that a tmpfs full of empty files takes.
const maxInodes = 1 << 19

// folder is the work folder of one Execution.
type folder struct {
	path    string
	root    *os.File
	keep    bool // it is the WorkRoot itself: emptied, not removed
	mounted bool
}

// makeFolder makes the work folder, 0700 and the program's own.
func makeFolder(cfg Config, diskBytes int64) (*folder, error) {
	f := &folder{path: cfg.WorkRoot, keep: cfg.UseWorkRoot}
	if !f.keep {
		// Short: TMPDIR lies below it, and programs put sockets there, whose paths may have 107 bytes (multiprocessing's
		// manager takes 32).
		var name [4]byte
		_, _ = rand.Read(name[:]) // never fails (crypto/rand)
		f.path = filepath.Join(cfg.WorkRoot, hex.EncodeToString(name[:]))
		if err := os.Mkdir(f.path, 0o700); err != nil {
			return nil, fmt.Errorf("work folder: %w", err)
		}
		if cfg.Tmpfs {
			if err := unix.Mount("tmpfs", f.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, tmpfsOptions(cfg, diskBytes)); err != nil {
				return nil, errors.Join(fmt.Errorf("work folder: mount: %w", err), f.remove())
			}
			f.mounted = true
		}
	}
	root, err := os.Open(f.path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("work folder: %w", err), f.remove())
	}
	f.root = root
	if !f.keep && !f.mounted && cfg.UID != 0 {
		if err := root.Chown(cfg.UID, cfg.GID); err != nil {
			return nil, errors.Join(fmt.Errorf("work folder: %w", err), f.remove())
		}
	}
	return f, nil
}

func tmpfsOptions(cfg Config, diskBytes int64) string {
	options := "mode=0700,uid=" + strconv.Itoa(cfg.UID) + ",gid=" + strconv.Itoa(cfg.GID)
	inodes := int64(maxInodes)
	if diskBytes > 0 {
		options += ",size=" + strconv.FormatInt(diskBytes, 10)
		inodes = min(inodes, diskBytes>>12+1024)
	}
	return options + ",nr_inodes=" + strconv.FormatInt(inodes, 10)
}

func (f *folder) fd() int { return int(f.root.Fd()) }

// makeTmp makes the program's TMPDIR. A Workspace may bring a folder of that name, nothing else.
func (f *folder) makeTmp(cfg Config) error {
	err := unix.Mkdirat(f.fd(), tmpName, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("temporary folder: %w", err)
	}
	fd, err := openDir(f.fd(), tmpName)
	if err != nil {
		return badEntry(tmpName, "this name is reserved for the temporary folder")
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	if err := unix.Fchmod(fd, 0o700); err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	if cfg.UID != 0 {
		if err := unix.Fchown(fd, cfg.UID, cfg.GID); err != nil {
			return fmt.Errorf("temporary folder: %w", err)
		}
	}
	return nil
}

// remove gives the folder and all in it back.
func (f *folder) remove() error {
	if f.mounted {
		errs := f.closeRoot()
		if err := unix.Unmount(f.path, unix.MNT_DETACH); err != nil {
			errs = errors.Join(errs, fmt.Errorf("work folder: unmount: %w", err))
		}
		return errors.Join(errs, os.Remove(f.path))
	}
	if f.root == nil {
		if f.keep {
			return nil
		}
		return os.Remove(f.path)
	}
	err := emptyFolder(f.fd())
	err = errors.Join(err, f.closeRoot())
	if f.keep {
		return err
	}
	return errors.Join(err, os.Remove(f.path))
}

func (f *folder) closeRoot() error {
	if f.root == nil {
		return nil
	}
	err := f.root.Close()
	f.root = nil
	return err
}

// emptyFolder removes everything below root, following no link. Trees deeper than flattenDepth are moved up and removed
// there, so that the depth a program chose costs no descriptors.
func emptyFolder(root int) error {
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails (crypto/rand)
	e := emptier{root: root, prefix: ".flat-" + hex.EncodeToString(name[:]) + "-"}
	var st unix.Stat_t
	if unix.Fstat(root, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(root, st.Mode&0o777|0o700) // a program may have taken its own rights away
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

const flattenDepth = 64

type emptier struct {
	root int
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
	if err == nil || errors.Is(err, unix.ENOENT) {
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
	err = unix.Fchmod(sub, 0o700) // a folder without write permission cannot be emptied by its own owner
	err = errors.Join(err, e.folder(sub, depth+1), unix.Close(sub))
	if err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}
