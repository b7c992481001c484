package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
)

// Tree is an unpacked Workspace that several work folders share. Each is an overlay: the Tree is its read-only lower folder, and what
// the program writes goes to a folder of the program's own disk.
type Tree struct {
	Name   string
	Python archive.PythonFiles
	// Root is the folder. It lies below the mount point of the box's tmpfs, where only the runner gets to.
	Root *os.File
	in   *os.File
	base string
}

// overlayOptions make an overlay behave like one file system: folders of the Tree can be renamed, and names of one file stay names of one
// file. Ordinary users have neither.
const overlayOptions = "redirect_dir=on,index=on,metacopy=off,xino=off"

// overlayArea is the folder of a disk that the kernel needs for an overlay.
const overlayArea = "overlay"

// TakesTrees reports whether work folders may have Trees here.
func (d *Disk) TakesTrees() bool { return d != nil && d.trees != nil && d.trees() }

// probeTrees tries what programs do in an overlay that not every kernel, user and file system can do.
func (d *Disk) probeTrees() (err error) {
	l, err := d.NewTree("probe")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Remove()) }()
	in := l.Root.Name()
	err = errors.Join(os.Mkdir(filepath.Join(in, "folder"), 0o700), os.WriteFile(filepath.Join(in, "file"), nil, 0o600), os.Link(filepath.Join(in, "file"), filepath.Join(in, "link")))
	if err != nil {
		return err
	}
	at := filepath.Join(filepath.Dir(d.root), "probe")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(at)) }()
	if err := unix.Mount("tmpfs", at, "tmpfs", diskFlags, "size=1m"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)) }()
	top, err := os.Open(at)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := unix.Mkdirat(int(top.Fd()), workArea, 0o700); err != nil {
		return err
	}
	if err := l.mount(top, at); err != nil {
		return err
	}
	return errors.Join(behavesLikeFolder(at), unix.Unmount(at, unix.MNT_DETACH))
}

// behavesLikeFolder renames a folder of the lower layer and writes to a file that has two names there.
func behavesLikeFolder(at string) error {
	err := errors.Join(os.Rename(filepath.Join(at, "folder"), filepath.Join(at, "other")), os.WriteFile(filepath.Join(at, "link"), []byte("x"), 0o600))
	if err != nil {
		return err
	}
	if st, err := os.Stat(filepath.Join(at, "file")); err != nil || st.Size() != 1 {
		return errors.Join(errors.New("the names of a file become files"), err)
	}
	return nil
}

// NewTree makes an empty Tree.
func (d *Disk) NewTree(name string) (*Tree, error) {
	d.treeNumber++
	l := &Tree{Name: name, in: d.base, base: "tree-" + strconv.Itoa(d.treeNumber)}
	err := os.Mkdir(inside(l.in, l.base), 0o700)
	if err == nil {
		l.Root, err = os.Open(inside(l.in, l.base))
	}
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return l, nil
}

// Remove removes the files. No work folder uses them.
func (l *Tree) Remove() error {
	if l == nil {
		return nil
	}
	err := errors.Join(archive.Empty(int(l.Root.Fd())), l.Root.Close(), unix.Unlinkat(int(l.in.Fd()), l.base, unix.AT_REMOVEDIR))
	if err != nil {
		return fmt.Errorf("tree: %w", err)
	}
	return nil
}

// mount mounts an overlay on at. What is written goes to the work area of the disk.
func (l *Tree) mount(disk *os.File, at string) error {
	if err := unix.Mkdirat(int(disk.Fd()), overlayArea, 0o700); err != nil {
		return err
	}
	options := "lowerdir=" + inside(l.in, l.base) + ",upperdir=" + inside(disk, workArea) + ",workdir=" + inside(disk, overlayArea)
	return unix.Mount("overlay", at, "overlay", diskFlags, options+","+overlayOptions)
}

// minFree is how many bytes a disk of the machine must have free for a Tree, besides those that the Tree may take.
const minFree = 1 << 30

// TakesTree reports whether f can have a Tree. What is bound into the work folder would not be seen in an overlay.
func (f *Folder) TakesTree() bool {
	if !f.Disk.TakesTrees() {
		return false
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Disk.base.Fd()), &st); err != nil || st.Bavail*uint64(st.Bsize) < uint64(max(f.Disk.bytes, 0)+minFree) { //nolint:gosec // never negative
		return false
	}
	return !slices.ContainsFunc(f.Disk.bindings, func(b binding) bool { return below(f.Disk.view.at(b.path), f.Disk.work) })
}

// Lay gives the empty folder f the files of l.
func (f *Folder) Lay(l *Tree) error {
	d := f.Disk
	if err := l.mount(d.tmpfs, d.work); err != nil {
		return fmt.Errorf("tree: mount: %w", err)
	}
	d.laid = true
	root, err := os.Open(f.at)
	if err != nil {
		return fmt.Errorf("tree: %w", err)
	}
	err = f.Root.Close()
	f.Root = root
	return err
}
