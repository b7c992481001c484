package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// readOnly are the mount attributes of everything in a box that programs only read.
const readOnly = unix.MOUNT_ATTR_RDONLY | writable

// writable are those of what they may write to.
const writable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// view is the root folder of a box, as the runner sees it.
type view struct {
	path string
	root *os.Root
	dir  *os.File
}

func openView(path string) (*view, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &view{path: path, root: root, dir: dir}, nil
}

func (v *view) close() error { return errors.Join(v.root.Close(), v.dir.Close()) }

// at returns the name that the runner has for a path of the box.
func (v *view) at(path string) string {
	if v == nil {
		return path
	}
	return filepath.Join(v.path, path)
}

// stat is os.Stat for a path of the box. It follows links as a program in the box does, and never leaves the box. Without a
// view it is os.Stat.
func (v *view) stat(path string) (fs.FileInfo, error) {
	if v == nil {
		return os.Stat(path)
	}
	fd, err := v.open(path)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path) //nolint:gosec // a descriptor
	defer f.Close()                    //nolint:errcheck // nothing was written
	return f.Stat()
}

// open opens a path of the box as a name (O_PATH), as stat does.
func (v *view) open(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	return unix.Openat2(int(v.dir.Fd()), path, &how)
}

// bindPath is bind for a path of the machine that nobody but its administrator may exchange. It follows links.
func (v *view) bindPath(source, path string, attributes uint64) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: source, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	_, err = v.bind(fd, path, attributes)
	return err
}

// bind mounts source, an open file or folder of the machine, with all that is mounted below it, on a path of the box. It makes the path
// where it does not exist, and returns the uppermost name that it has made, or "".
func (v *view) bind(source int, path string, attributes uint64) (made string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return "", err
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	name := strings.TrimPrefix(filepath.Clean(path), "/")
	if made, err = v.place(name, folder); err != nil {
		return made, err
	}
	target, err := v.root.Open(name)
	if err != nil {
		return made, err
	}
	defer target.Close() //nolint:errcheck // nothing was written
	if err := bindAt(source, int(target.Fd()), attributes, folder); err != nil {
		return made, fmt.Errorf("bind %s: %w", path, err)
	}
	return made, nil
}

// bindAt mounts an open file or folder on another one.
func bindAt(source, target int, attributes uint64, recursive bool) error {
	flags, at := uint(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH), uint(unix.AT_EMPTY_PATH)
	if recursive { // a user namespace cannot bind a folder without what is mounted in it
		flags, at = flags|unix.AT_RECURSIVE, at|unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(source, "", flags)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree) //nolint:errcheck // nothing was written
	if err := unix.MountSetattr(tree, "", at, &unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	if err := unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// place makes a file or folder to mount on, and the folders above it, where they do not exist. It returns the uppermost name
// that it has made, or "".
func (v *view) place(name string, folder bool) (made string, err error) {
	if _, err := v.root.Stat(name); err == nil {
		return "", nil
	}
	for up := name; up != "."; up = filepath.Dir(up) {
		if _, err := v.root.Lstat(up); err == nil {
			break
		}
		made = up
	}
	above := name
	if !folder {
		above = filepath.Dir(name)
	}
	if err := v.root.MkdirAll(above, 0o755); err != nil { //nolint:gosec // programs pass through
		return made, err
	}
	if folder {
		return made, nil
	}
	return made, v.write(name, nil)
}

// write makes a file that all may read.
func (v *view) write(name string, data []byte) error {
	f, err := v.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// unbind undoes bind.
func (v *view) unbind(path, made string) error {
	if err := unix.Unmount(v.at(path), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return v.unmake(path, made)
}

// unmake removes what place has made for path, as long as it is empty: it never removes what is in a folder.
func (v *view) unmake(path, made string) error {
	if made == "" {
		return nil
	}
	for name := strings.TrimPrefix(path, "/"); ; name = filepath.Dir(name) {
		err := v.root.Remove(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) {
			err = nil
		}
		if err != nil || name == made {
			return err
		}
	}
}
