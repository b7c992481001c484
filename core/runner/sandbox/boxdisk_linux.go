package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// binding is a path of the machine that is mounted at the same path in a box.
type binding struct {
	path     string
	writable bool
	// name is the path that was asked for: a link to path, or path itself.
	name string
	// lent ends with the disk. The others stay until an Execution does not name them.
	lent bool
	// disk reports that it lies in a private folder, which takes it along.
	disk bool
	// made is the uppermost name that was made for it, or "".
	made string
	// real reports that a caller has named the path, and was checked for it: it must exist, and no link may take it elsewhere now.
	real bool
}

// PrivateFolders returns the folders of a box that are private to each program and hide the machine's.
func PrivateFolders() []string { return []string{tempPath, "/var/tmp", "/dev/shm", "/run/lock"} }

// newBoxDisk returns the disk of a box, and binds what Config.Reach names.
func newBoxDisk(cfg protocol.Config, b *Box) (*Disk, error) {
	d := &Disk{root: filepath.Join(b.dir, boxDisk), view: b.view, work: b.view.at(workPath), uid: cfg.UID, gid: cfg.GID, base: b.base}
	d.trees = sync.OnceValue(func() bool { return d.probeTrees() == nil })
	for i, path := range PrivateFolders() {
		d.covers = append(d.covers, &cover{path: b.view.at(path), name: fmt.Sprintf("private-%d", i)})
	}
	for _, path := range slices.SortedFunc(slices.Values(cfg.Reach), byLength) {
		if d.onDisk(path) {
			d.reached = append(d.reached, path)
		} else if err := d.bind(binding{path: path}); err != nil {
			return nil, err
		}
	}
	d.bindings = nil // they stay for good
	return d, nil
}

// byLength puts folders before what lies in them.
func byLength(a, b string) int { return cmp.Compare(len(a), len(b)) }

// onDisk reports whether a path of the box lies in a folder of the disk.
func (d *Disk) onDisk(path string) bool {
	at := d.view.at(path)
	return d.hiding(at) != nil && !d.covered(at) || below(at, d.work) && at != d.work
}

// Hides reports whether a folder of the machine lies in a private folder of the box. It is there only while a program runs then.
func (d *Disk) Hides(dir string) bool {
	if d == nil || d.view == nil {
		return false
	}
	real, err := filepath.EvalSymlinks(dir)
	return err != nil || d.onDisk(real) || d.onDisk(dir)
}

// bindAll binds what start names, and unbinds what only an Execution before has named.
func (d *Disk) bindAll(start protocol.Start) error {
	var wanted []binding
	for _, path := range slices.Concat(d.reached, start.Reach, filepath.SplitList(start.Path)) {
		if at := d.view.at(path); !d.covered(at) && at != d.work {
			wanted = append(wanted, binding{path: path})
		}
	}
	for _, path := range start.Writable {
		wanted = append(wanted, binding{path: path, writable: true, lent: true})
	}
	if start.Directory != "" {
		wanted = append(wanted, binding{path: start.Directory, writable: start.DirectoryWritable, lent: true, real: true})
	}
	slices.SortStableFunc(wanted, func(a, b binding) int { return byLength(a.path, b.path) })
	// The same folder is named several times, and this is on the path of a start.
	seen := map[string]bool{}
	shows := func(path string) bool {
		shown, known := seen[path]
		if !known {
			shown = d.shows(path)
			seen[path] = shown
		}
		return shown
	}
	err := d.unbind(func(had binding) bool {
		keep := shows(had.path) && slices.ContainsFunc(wanted, func(w binding) bool {
			return had.name == filepath.Clean(w.path) && had.writable == w.writable
		})
		if !keep {
			clear(seen)
		}
		return !keep
	})
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if !w.writable && shows(w.path) {
			continue
		}
		if err := d.bind(w); err != nil {
			return err
		}
		clear(seen)
	}
	return nil
}

// shows reports whether a path of the box is the same file or folder as that path of the machine.
func (d *Disk) shows(path string) bool {
	var theirs unix.Stat_t
	return unix.Stat(path, &theirs) == nil && d.showsFile(path, theirs)
}

// showsFile reports whether a path of the box is that file or folder of the machine.
func (d *Disk) showsFile(path string, theirs unix.Stat_t) bool {
	fd, err := d.view.open(path)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var ours unix.Stat_t
	return unix.Fstat(fd, &ours) == nil && ours.Dev == theirs.Dev && ours.Ino == theirs.Ino
}

// bind mounts a path of the machine at the same path in the box, and at its real path where it is a link. It does nothing where
// the path does not exist, or is there already. What it has opened is what it mounts.
func (d *Disk) bind(b binding) error {
	if !filepath.IsAbs(b.path) {
		return nil
	}
	b.name = filepath.Clean(b.path)
	source, real, err := b.open()
	if errors.Is(err, fs.ErrNotExist) && !b.real {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(source) //nolint:errcheck // nothing was written
	if real == "/" {
		return executor.Errorf(executor.Invalid, "reach: must not be the machine's root folder")
	}
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return fmt.Errorf("reach: %w", err)
	}
	for _, path := range slices.Compact([]string{real, b.name}) {
		b.path = path
		if d.has(b, st) {
			continue
		}
		attributes := uint64(readOnly)
		if b.writable {
			attributes = writable
		}
		b.disk = d.onDisk(path)
		if b.made, err = d.view.bind(source, path, attributes); err != nil {
			return errors.Join(fmt.Errorf("reach %s: %w", path, err), d.view.unmake(path, b.made))
		}
		d.bindings = append(d.bindings, b)
	}
	return nil
}

// open opens what b names on the machine, as a name (O_PATH), and returns its path without links.
func (b binding) open() (source int, real string, err error) {
	if b.real {
		source, err = openDirectory(b.name)
		return source, b.name, err
	}
	if real, err = filepath.EvalSymlinks(b.name); err == nil {
		source, err = openReal(real)
	}
	if err != nil {
		return -1, "", fmt.Errorf("reach: %w", err)
	}
	return source, real, nil
}

// has reports whether the box shows that file or folder of the machine at the path of b, with at least the rights of b.
func (d *Disk) has(b binding, st unix.Stat_t) bool {
	for _, had := range d.bindings {
		if below(b.path, had.path) && (had.writable || !b.writable) && d.showsFile(b.path, st) {
			return true
		}
	}
	return !b.writable && d.showsFile(b.path, st)
}

// unbind unmounts the bindings that which chooses. No program runs.
func (d *Disk) unbind(which func(binding) bool) error {
	var errs error
	for _, b := range slices.Backward(slices.Clone(d.bindings)) {
		if which(b) {
			errs = errors.Join(errs, d.view.unbind(b.path, b.made))
			d.bindings = slices.DeleteFunc(d.bindings, func(o binding) bool { return o == b })
		}
	}
	return errs
}

// unbindLent unmounts what ends with the disk. A program may have renamed folders in the private folders, so what lies there is
// not unmounted by name: it goes with them.
func (d *Disk) unbindLent() error {
	d.bindings = slices.DeleteFunc(d.bindings, func(b binding) bool { return b.disk })
	return d.unbind(func(b binding) bool { return b.lent })
}
