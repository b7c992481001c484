package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// publicFolders returns the folders of a machine that every user may write to.
func publicFolders() []string {
	return []string{"/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/run/shm", "/var/lock", "/dev/mqueue"}
}

// workArea is the folder of a disk that is mounted on Config.WorkRoot.
const workArea = "work"

// Disk is the tmpfs that holds all that programs may write: the work folder, and private folders in the place of the machine's
// public ones. Only the runner and its programs see its mounts, which end with the last of those processes. Each Execution and
// each session has a disk of its own. It is unmounted behind it, so no file has to be found and removed.
type Disk struct {
	root   string // Config.WorkRoot, without links
	covers []*cover
	// reached lists the paths below public folders that programs need: absolute, clean, without links.
	reached []string

	// In a box, view is its root folder. reached are then the paths that lie below public folders, and bindings what Reach and
	// Start name.
	view     *view
	bindings []binding
	// work is the place of the work area: in a box a folder of the box, which is the program's, else root.
	work string
	uid  int
	gid  int
	// base is the folder of the machine that the box's tmpfs hides. Trees lie in it. It is nil without a box.
	base       *os.File
	trees      func() bool
	treeNumber int

	// The following are of the mounted disk.
	tmpfs *os.File // nil: it is not mounted
	bytes int64
	laid  bool // an overlay is mounted on the work folder
	// hidden are the public folders that are hidden now. shown are paths in them that are visible nevertheless.
	hidden []*cover
	shown  []string
}

// cover is a public folder and the private folder in its place.
type cover struct {
	path string // without links
	name string // of the stand-in, in the tmpfs
	// host is the machine's folder, which the private one hides.
	host *os.File
}

// newDisk finds the public folders of this machine.
func newDisk(cfg protocol.Config) (*Disk, error) {
	root, err := filepath.EvalSymlinks(cfg.WorkRoot)
	if err != nil {
		return nil, fmt.Errorf("work_root: %w", err)
	}
	d := &Disk{root: root, work: root}
	for _, dir := range slices.Concat(publicFolders(), cfg.Private) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if st, err := os.Stat(real); err != nil || !st.IsDir() || d.hiding(real) != nil {
			continue
		}
		fd, err := unix.Open(real, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("private folders: %s: %w", dir, err)
		}
		host := os.NewFile(uintptr(fd), real) //nolint:gosec // a descriptor
		d.covers = append(d.covers, &cover{path: real, name: "private-" + strconv.Itoa(len(d.covers)), host: host})
	}
	if len(d.covers) == 0 {
		return nil, errors.New("private folders: this machine has no /tmp")
	}
	for _, path := range cfg.Reach {
		if real, err := filepath.EvalSymlinks(path); err == nil && !d.covered(real) {
			d.reached = append(d.reached, real)
		}
	}
	return d, nil
}

// temp returns the programs' TMPDIR.
func (d *Disk) temp() string { return d.covers[0].path }

// hiding returns the public folder that path is or lies below, or nil.
func (d *Disk) hiding(path string) *cover {
	for _, c := range d.covers {
		if below(path, c.path) {
			return c
		}
	}
	return nil
}

// covered reports whether path is a public folder itself. Only an Execution that works in it gets the machine's.
func (d *Disk) covered(path string) bool {
	c := d.hiding(filepath.Clean(path))
	return c != nil && c.path == filepath.Clean(path)
}

// below reports whether path is dir or lies below it. Both are clean.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// fit makes the disk hold bytes, and mounts it if there is none. 0 is half of the machine's memory.
func (d *Disk) fit(bytes int64) error {
	switch {
	case d.tmpfs == nil:
		if err := d.mount(bytes); err != nil {
			return errors.Join(fmt.Errorf("disk: %w", err), d.unmount())
		}
	case d.bytes != bytes:
		if err := unix.Mount("", d.root, "", unix.MS_REMOUNT|diskFlags, diskOptions(bytes)); err != nil {
			return fmt.Errorf("disk: resize: %w", err)
		}
		d.bytes = bytes
	}
	return nil
}

const diskFlags = unix.MS_NOSUID | unix.MS_NODEV

func diskOptions(bytes int64) string {
	inodes, size := int64(maxInodes), "50%" // of the machine's memory
	if bytes > 0 {
		inodes, size = min(inodes, bytes>>12+1024), strconv.FormatInt(bytes, 10)
	}
	return "mode=0711,size=" + size + ",nr_inodes=" + strconv.FormatInt(inodes, 10)
}

// mount makes a tmpfs and mounts its folders in their places.
func (d *Disk) mount(bytes int64) error {
	if err := unix.Mount("tmpfs", d.root, "tmpfs", diskFlags, diskOptions(bytes)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	var err error
	if d.tmpfs, err = os.Open(d.root); err != nil {
		return errors.Join(err, unix.Unmount(d.root, unix.MNT_DETACH))
	}
	d.bytes = bytes
	if d.view != nil {
		// In a shared mount, what is bound in a private folder would appear below the folder's name here, too, and be emptied.
		if err := unix.Mount("", d.root, "", unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("private mount: %w", err)
		}
	}
	if err := d.makeWorkArea(); err != nil {
		return err
	}
	for _, c := range d.covers {
		if err := unix.Mkdirat(d.fd(), c.name, 0o700); err != nil {
			return fmt.Errorf("private folder %s: %w", c.path, err)
		}
		if err := d.open(c); err != nil {
			return err
		}
		if err := unix.Mount(inside(d.tmpfs, c.name), c.path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("private folder %s: mount: %w", c.path, err)
		}
		d.hidden = append(d.hidden, c)
	}
	for _, path := range d.reached {
		if err := d.reach(path); err != nil {
			return err
		}
	}
	if err := d.show(d.work, inside(d.tmpfs, workArea)); err != nil {
		return fmt.Errorf("work root: %w", err)
	}
	d.shown = append(d.shown, d.work)
	return nil
}

// makeWorkArea makes the folder that is mounted on the work root, or the work folder of a box.
func (d *Disk) makeWorkArea() error {
	if d.view == nil {
		return unix.Mkdirat(d.fd(), workArea, 0o711)
	}
	if err := unix.Mkdirat(d.fd(), workArea, 0o700); err != nil || d.uid == 0 {
		return err
	}
	return unix.Fchownat(d.fd(), workArea, d.uid, d.gid, unix.AT_SYMLINK_NOFOLLOW)
}

// open lets all users write to c. The runner owns it, so that a program cannot rename what is shown in it.
func (d *Disk) open(c *cover) error {
	if err := unix.Fchmodat(d.fd(), c.name, 0o1777, 0); err != nil {
		return fmt.Errorf("private folder %s: %w", c.path, err)
	}
	return nil
}

// unmount ends the disk with all that is in it. The next fit makes another one.
func (d *Disk) unmount() error {
	if d.tmpfs == nil {
		return nil
	}
	var errs error
	unmount := func(path string) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			errs = errors.Join(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	if d.laid {
		unmount(d.work)
		d.laid = false
	}
	if slices.Contains(d.shown, d.work) && d.hiding(d.work) == nil {
		unmount(d.work)
	}
	errs = errors.Join(errs, d.unbindLent())
	for _, c := range slices.Backward(d.hidden) {
		unmount(c.path) // and what is mounted below it
	}
	unmount(d.root)
	errs = errors.Join(errs, d.tmpfs.Close())
	d.tmpfs, d.hidden, d.shown = nil, nil, nil
	return errs
}

// reachAll makes what start names visible for the next program.
func (d *Disk) reachAll(start protocol.Start) error {
	if d.view != nil {
		return d.bindAll(start)
	}
	wanted := slices.Concat(start.Reach, filepath.SplitList(start.Path))
	wanted = slices.DeleteFunc(wanted, d.covered)
	if start.Directory != "" {
		wanted = append(wanted, start.Directory)
	}
	for _, path := range wanted {
		if err := d.reach(path); err != nil {
			return fmt.Errorf("work folder: %w", err)
		}
	}
	return nil
}

// reach makes path of the machine visible, if a private folder hides it. It does nothing if path does not exist.
func (d *Disk) reach(path string) error {
	if d.view != nil {
		return d.bind(binding{path: path})
	}
	if !filepath.IsAbs(path) {
		return nil
	}
	path = filepath.Clean(path)
	c := d.hiding(path)
	if c == nil || slices.ContainsFunc(d.shown, func(had string) bool { return below(path, had) }) {
		return nil
	}
	source := inside(c.host, strings.TrimPrefix(strings.TrimPrefix(path, c.path), "/"))
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.show(path, source); err != nil {
		return fmt.Errorf("reach %s: %w", path, err)
	}
	d.shown = append(d.shown, path)
	return nil
}

// show mounts source on path, and makes the folders above path.
func (d *Disk) show(path, source string) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	way := path
	if !st.IsDir() {
		way = filepath.Dir(path)
	}
	if err := os.MkdirAll(way, 0o711); err != nil { //nolint:gosec // programs pass through
		return err
	}
	if !st.IsDir() {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600) //nolint:gosec // a place for a mount
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			return err
		}
	}
	// The mount is recursive, because a user namespace cannot bind a folder without what is mounted in it.
	return unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, "")
}

// wipe empties the private folders of a session that goes on. It does not enter what is shown in them.
func (d *Disk) wipe() error {
	var errs error
	for _, c := range d.covers {
		errs = errors.Join(errs, d.discard(c.name), d.open(c))
	}
	return errs
}

// discard empties a folder of the tmpfs, except for mount points. The mounts themselves are on the private folder and not on
// this name of it.
func (d *Disk) discard(name string) error {
	dir, err := archive.OpenDir(d.fd(), name)
	if err != nil {
		return err
	}
	return errors.Join(archive.EmptyAround(dir), unix.Close(dir))
}

func (d *Disk) fd() int { return int(d.tmpfs.Fd()) }

// inside returns a name of a file below an open folder that no mount can cover.
func inside(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}
