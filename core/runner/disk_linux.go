package runner

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
)

// publicFolders returns the folders of a machine that every user may write to.
func publicFolders() []string {
	return []string{"/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/run/shm", "/var/lock", "/dev/mqueue"}
}

// workArea is the folder of a disk that is mounted on Config.WorkRoot.
const workArea = "work"

// maxReused is the most files that are removed one by one. A disk with more is unmounted, and another one mounted.
const maxReused = 1000

// disk is the tmpfs that holds all that programs may write to: the work folder, and private folders in the place of the
// machine's public ones. Only the runner and its programs see its mounts, which end with the last of those processes.
// Executions use it one after the other; each finds it empty.
type disk struct {
	root   string // Config.WorkRoot, without links
	covers []*cover
	// reached lists what programs must reach of the public folders: absolute, clean, without links.
	reached []string

	// Of the mounted one.
	tmpfs *os.File // nil: it is not mounted
	bytes int64
	// hidden are the public folders that are hidden now, shown are paths in them that are visible all the same.
	hidden []*cover
	shown  []string
	// lent: shown holds what one Execution alone may reach.
	lent bool
	// empty is what is in use while no Execution has it.
	empty usage
}

// cover is a public folder and its private stand-in.
type cover struct {
	path string // without links
	name string // of the stand-in, in the tmpfs
	// host is the machine's folder, which the stand-in hides.
	host *os.File
}

// usage is what is in use of a tmpfs.
type usage struct{ blocks, files uint64 }

// newDisk looks for the public folders of this machine. Those that do not exist need no stand-in.
func newDisk(cfg Config) (*disk, error) {
	root, err := filepath.EvalSymlinks(cfg.WorkRoot)
	if err != nil {
		return nil, fmt.Errorf("work_root: %w", err)
	}
	d := &disk{root: root}
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

// temp is what programs have as TMPDIR.
func (d *disk) temp() string { return d.covers[0].path }

// hiding returns the public folder that path is or lies below; nil: none.
func (d *disk) hiding(path string) *cover {
	for _, c := range d.covers {
		if below(path, c.path) {
			return c
		}
	}
	return nil
}

// covered reports whether path is a public folder itself. Only who asks to work in it gets the machine's.
func (d *disk) covered(path string) bool {
	c := d.hiding(filepath.Clean(path))
	return c != nil && c.path == filepath.Clean(path)
}

// below reports whether path is dir or lies below it. Both are clean.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// fit makes the disk hold bytes. It mounts one if there is none. 0 is half of the machine's memory.
func (d *disk) fit(bytes int64) error {
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

// mount makes a tmpfs and mounts its parts in their places.
func (d *disk) mount(bytes int64) error {
	if err := unix.Mount("tmpfs", d.root, "tmpfs", diskFlags, diskOptions(bytes)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	var err error
	if d.tmpfs, err = os.Open(d.root); err != nil {
		return errors.Join(err, unix.Unmount(d.root, unix.MNT_DETACH))
	}
	d.bytes, d.lent = bytes, false
	if err := unix.Mkdirat(d.fd(), workArea, 0o711); err != nil {
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
	if err := d.show(d.root, inside(d.tmpfs, workArea)); err != nil {
		return fmt.Errorf("work root: %w", err)
	}
	d.shown = append(d.shown, d.root)
	d.empty, err = d.use()
	return err
}

// open lets everybody use c. Its owner is the runner, so that a program cannot rename what is shown in it.
func (d *disk) open(c *cover) error {
	if err := unix.Fchmodat(d.fd(), c.name, 0o1777, 0); err != nil {
		return fmt.Errorf("private folder %s: %w", c.path, err)
	}
	return nil
}

// unmount ends the disk and all that is in it. The next fit makes another one.
func (d *disk) unmount() error {
	if d.tmpfs == nil {
		return nil
	}
	var errs error
	unmount := func(path string) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			errs = errors.Join(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	if slices.Contains(d.shown, d.root) && d.hiding(d.root) == nil {
		unmount(d.root)
	}
	for _, c := range slices.Backward(d.hidden) {
		unmount(c.path) // and what is mounted below it
	}
	unmount(d.root)
	errs = errors.Join(errs, d.tmpfs.Close())
	d.tmpfs, d.hidden, d.shown = nil, nil, nil
	return errs
}

// reachAll lets the next program see what start names.
func (d *disk) reachAll(start Start) error {
	wanted := slices.Concat(start.Reach, filepath.SplitList(start.Path))
	wanted = slices.DeleteFunc(wanted, d.covered)
	if start.Directory != "" {
		wanted = append(wanted, start.Directory)
	}
	before := len(d.shown)
	for _, path := range wanted {
		if err := d.reach(path); err != nil {
			return fmt.Errorf("work folder: %w", err)
		}
	}
	d.lent = d.lent || len(d.shown) > before
	return nil
}

// reach lets programs see path of the machine, should a stand-in hide it. It does nothing where path does not exist.
func (d *disk) reach(path string) error {
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

// show mounts source on path, and makes the way there.
func (d *disk) show(path, source string) error {
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
	// Recursive: a user namespace may not take a tree without what is mounted in it.
	return unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, "")
}

// clean removes what an Execution has left. None of its processes is alive. Afterwards the disk is as it was before, or
// it is unmounted.
func (d *disk) clean() error {
	if d.tmpfs == nil {
		return nil
	}
	if now, err := d.use(); err != nil || d.lent || now.files > d.empty.files+maxReused {
		return errors.Join(err, d.unmount())
	}
	err := errors.Join(d.wipe(), d.discard(workArea))
	if now, useErr := d.use(); err != nil || useErr != nil || now != d.empty {
		return d.unmount() // a program may have its ways to be in the way, but not of this
	}
	return nil
}

// wipe empties the private folders. What is shown in them stays, and is not entered.
func (d *disk) wipe() error {
	var errs error
	for _, c := range d.covers {
		errs = errors.Join(errs, d.discard(c.name), d.open(c))
	}
	return errs
}

// discard empties a folder of the tmpfs, but for the places of mounts. They are passed by: they are mounted on the stand-in,
// not on this folder of it.
func (d *disk) discard(name string) error {
	dir, err := openDir(d.fd(), name)
	if err != nil {
		return err
	}
	return errors.Join(emptyAround(dir), unix.Close(dir))
}

func (d *disk) use() (usage, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.fd(), &st); err != nil {
		return usage{}, fmt.Errorf("disk: %w", err)
	}
	return usage{blocks: st.Blocks - st.Bfree, files: st.Files - st.Ffree}, nil
}

func (d *disk) fd() int { return int(d.tmpfs.Fd()) }

// inside names a file below an open folder, whatever is mounted over that.
func inside(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}
