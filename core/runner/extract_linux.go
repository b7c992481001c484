package runner

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// extractor unpacks a tar stream into one folder. It trusts nothing in it: see the list in doc.go.
type extractor struct {
	root     *os.File
	uid, gid int
	// own: files must be given to uid and gid.
	own bool
	// maxBytes bounds the sum of the files' sizes; 0 = no bound.
	maxBytes int64
	// progress is told the bytes read so far, now and then; may be nil.
	progress func(done int64)

	in      *tarInput
	dirs    dirStack
	buf     []byte
	entries int
	bytes   int64
	last    string
	firstPy string
	links   []string
	folders []folderMeta
}

// folderMeta waits until the folder is full: its mode could forbid filling it, and filling changes its time.
type folderMeta struct {
	name string
	mode uint32
	time time.Time
}

// extract unpacks r and reads it to its end. An *inputError names what is wrong with it; any other error is r's own or
// the machine's.
func (x *extractor) extract(r io.Reader) error {
	x.in = &tarInput{r: r}
	pooled := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(pooled)
	x.buf = *pooled
	x.dirs = dirStack{root: int(x.root.Fd()), made: x.chown}
	defer x.dirs.close()
	if err := x.in.sniff(); err != nil {
		return err
	}
	t := tar.NewReader(x.in)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.readError(err)
		}
		if err := x.entry(t, h); err != nil {
			return err
		}
	}
	if !x.in.ended {
		return badEntry(x.last, "the archive is cut off after this entry: it has no end mark")
	}
	if _, err := io.Copy(io.Discard, x.in.r); err != nil { // what follows the end mark is nobody's
		return err
	}
	return x.finish()
}

// readError says what reading the archive failed of, and after which entry.
func (x *extractor) readError(err error) error {
	if x.in.err != nil {
		return x.in.err // not the archive's fault
	}
	where := "at its first entry"
	if x.last != "" {
		where = fmt.Sprintf("after %q", x.last)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return badEntry("", "the archive is cut off %s", where)
	}
	return badEntry("", "not a tar archive %s: %s", where, strings.TrimPrefix(err.Error(), "archive/tar: "))
}

func (x *extractor) entry(t *tar.Reader, h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if x.entries++; x.entries > maxEntries {
		return badEntry(h.Name, "more than %d entries", maxEntries)
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	x.last = name
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return badEntry(h.Name, "an entry for the root that is not a folder")
		}
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		err = x.file(t, h, name)
	case tar.TypeDir:
		err = x.folder(h, name)
	case tar.TypeSymlink:
		err = x.symlink(h, name)
	case tar.TypeLink:
		err = x.hardlink(h, name)
	case tar.TypeChar, tar.TypeBlock:
		return badEntry(name, "a device")
	case tar.TypeFifo:
		return badEntry(name, "a FIFO")
	default:
		return badEntry(name, "an entry of unknown type %q", h.Typeflag)
	}
	return x.explain(name, err)
}

// explain turns what the kernel says about an entry into words about the archive, where it is the archive's fault.
func (x *extractor) explain(name string, err error) error {
	var bad *inputError
	switch {
	case err == nil, errors.As(err, &bad):
		return err
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return badEntry(name, "a part of its path is not a folder")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return badEntry(name, "the files do not fit into the disk limit")
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return badEntry(name, "a folder with files in it stands in the way")
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		return badEntry(name, "the file system does not take this name")
	case x.in.err != nil:
		return x.in.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badEntry(name, "the archive is cut off within this entry")
	default:
		return fmt.Errorf("unpack %q: %w", name, err)
	}
}

func (x *extractor) file(t *tar.Reader, h *tar.Header, name string) error {
	if h.Size < 0 || x.maxBytes > 0 && h.Size > x.maxBytes-x.bytes {
		return badEntry(name, "the files do not fit into the disk limit of %d bytes", x.maxBytes)
	}
	x.bytes += h.Size
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	mode := uint32(h.Mode)&0o777 | 0o600 //nolint:gosec // masked
	create := func() (int, error) {
		return unix.Openat(at, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	}
	fd, err := ignoringEINTR(create)
	if errors.Is(err, unix.EEXIST) {
		if err = x.clear(at, base, name); err != nil {
			return err
		}
		fd, err = ignoringEINTR(create)
	}
	if err != nil {
		return err
	}
	err = errors.Join(x.fill(fd, t), x.chown(fd))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	setTime(at, base, h.ModTime)
	if x.firstPy == "" && strings.HasSuffix(name, ".py") {
		x.firstPy = name
	}
	return nil
}

func (x *extractor) fill(fd int, t *tar.Reader) error {
	for {
		n, err := t.Read(x.buf)
		for data := x.buf[:n]; len(data) > 0; {
			w, err := ignoringEINTR(func() (int, error) { return unix.Write(fd, data) })
			if err != nil {
				return err
			}
			data = data[w:]
		}
		if x.progress != nil && n > 0 {
			x.progress(x.in.read)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) && x.in.err == nil {
				return badEntry(x.last, "%s", strings.TrimPrefix(err.Error(), "archive/tar: "))
			}
			return err
		}
	}
}

func (x *extractor) folder(h *tar.Header, name string) error {
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	st, err := lstat(at, base)
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		if err := x.clear(at, base, name); err != nil {
			return err
		}
	case err != nil && !errors.Is(err, unix.ENOENT):
		return err
	}
	if _, err := x.dirs.enter(name, true); err != nil {
		return err
	}
	x.folders = append(x.folders, folderMeta{name, uint32(h.Mode)&0o755 | 0o700, h.ModTime}) //nolint:gosec // masked
	return nil
}

// symlink makes a link if it stays inside as written. finish looks again where it leads once all links are there.
func (x *extractor) symlink(h *tar.Header, name string) error {
	target := h.Linkname
	if target == "" || path.IsAbs(target) || leaves(path.Join(path.Dir(name), target)) { //nolint:gosec // this is the check itself
		return badEntry(name, "a link that leaves the folder (to %q)", target)
	}
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	err = unix.Symlinkat(target, at, base)
	if errors.Is(err, unix.EEXIST) {
		if err = x.clear(at, base, name); err == nil {
			err = unix.Symlinkat(target, at, base)
		}
	}
	if err != nil {
		return err
	}
	if err := x.chownLink(at, base); err != nil {
		return err
	}
	x.links = append(x.links, name)
	return nil
}

// hardlink makes another name for a regular file of this archive.
func (x *extractor) hardlink(h *tar.Header, name string) error {
	target, err := cleanName(h.Linkname)
	if err != nil {
		return badEntry(name, "a hard link that leaves the folder (to %q)", h.Linkname)
	}
	if target == name {
		return badEntry(name, "a hard link to itself")
	}
	from := dirStack{root: x.dirs.root}
	defer from.close()
	targetAt, err := from.enter(path.Dir(target), false)
	if err != nil {
		return badEntry(name, "a hard link to %q, which is not there", target)
	}
	st, err := lstat(targetAt, path.Base(target))
	if err != nil {
		return badEntry(name, "a hard link to %q, which is not there", target)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return badEntry(name, "a hard link to %q, which is not a regular file", target)
	}
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	err = unix.Linkat(targetAt, path.Base(target), at, base, 0)
	if errors.Is(err, unix.EEXIST) {
		if err = x.clear(at, base, name); err == nil {
			err = unix.Linkat(targetAt, path.Base(target), at, base, 0)
		}
	}
	if err == nil && x.firstPy == "" && strings.HasSuffix(name, ".py") {
		x.firstPy = name
	}
	return err
}

// clear removes what a later entry of the same name replaces: anything but a folder with something in it.
func (x *extractor) clear(at int, base, name string) error {
	x.dirs.forget(name)
	err := unix.Unlinkat(at, base, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(at, base, unix.AT_REMOVEDIR)
	}
	return err
}

// finish sets the folders' modes and times, deepest last entries first, and checks where the links lead.
func (x *extractor) finish() error {
	for i := len(x.folders) - 1; i >= 0; i-- {
		f := x.folders[i]
		fd, err := x.dirs.enter(f.name, false)
		if err != nil {
			continue // a later entry replaced it
		}
		if err := unix.Fchmod(fd, f.mode); err != nil {
			return x.explain(f.name, err)
		}
		setTime(fd, ".", f.time)
	}
	if len(x.links) == 0 {
		return nil
	}
	root, err := os.OpenRoot(x.root.Name())
	if err != nil {
		return fmt.Errorf("check links: %w", err)
	}
	defer root.Close() //nolint:errcheck // read only
	for _, name := range x.links {
		// Each link stays inside as it is written, but several together may not: a/b → ../.., c → a/b/.. for example.
		_, err := root.Stat(name)
		if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) {
			continue // whoever follows it fares alike
		}
		return badEntry(name, "a link that leaves the folder")
	}
	return nil
}

func (x *extractor) chown(fd int) error {
	if !x.own {
		return nil
	}
	return unix.Fchown(fd, x.uid, x.gid)
}

// chownLink gives away the link base itself.
func (x *extractor) chownLink(at int, base string) error {
	if !x.own {
		return nil
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	err = unix.Fchownat(fd, "", x.uid, x.gid, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EBADF) {
		// gVisor's kernel takes no O_PATH descriptor here. It has no files but the container's.
		err = unix.Fchownat(at, base, x.uid, x.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	return errors.Join(err, unix.Close(fd))
}

// setTime sets a file's time as far as the file system can; a time is not worth an error.
func setTime(at int, name string, t time.Time) {
	ts, err := unix.TimeToTimespec(t)
	if err != nil || t.IsZero() {
		return
	}
	_ = unix.UtimesNanoAt(at, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW) // see above
}

// leaves reports whether a clean relative path leads out of where it starts.
func leaves(p string) bool {
	return p == ".." || strings.HasPrefix(p, "../") || path.IsAbs(p)
}
