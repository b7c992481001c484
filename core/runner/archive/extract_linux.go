package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Extractor unpacks a tar stream into one folder. It trusts nothing in the stream: see doc.go.
type Extractor struct {
	Root     *os.File
	UID, GID int
	// Own gives files to UID and GID.
	Own bool
	// MaxBytes bounds the sum of the files' sizes; 0 is no bound.
	MaxBytes int64
	// Progress, if not nil, is called from time to time with the bytes read so far.
	Progress func(done int64)

	in      *tarInput
	dirs    dirStack
	buf     []byte
	entries int
	bytes   int64
	last    string
	Python  PythonFiles
	links   []string
	folders []folderMeta
}

// folderMeta is a folder's mode and time. They are set when the folder is full: the mode could forbid filling it, and filling
// changes the time.
type folderMeta struct {
	name string
	mode uint32
	time time.Time
}

// Extract unpacks r and reads it to its end. An *InputError names what is wrong with r. Any other error is r's own or the
// machine's.
func (x *Extractor) Extract(r io.Reader) error {
	x.in = &tarInput{r: r}
	pooled := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer protocol.ChunkPool.Put(pooled)
	x.buf = *pooled
	x.dirs = dirStack{root: int(x.Root.Fd()), made: x.chown}
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
		return badEntry(x.last, "the archive ends after this entry without an end mark")
	}
	if _, err := io.Copy(io.Discard, x.in.r); err != nil { // what follows the end mark is ignored
		return err
	}
	return x.finish()
}

// readError returns the error of reading the archive, with the entry before it.
func (x *Extractor) readError(err error) error {
	if x.in.err != nil {
		return x.in.err // not the archive's fault
	}
	where := "at its first entry"
	if x.last != "" {
		where = fmt.Sprintf("after %q", x.last)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return badEntry("", "the archive ends %s: it was cut, or it is no tar", where)
	}
	return badEntry("", "not a tar archive %s: %s; it must be an uncompressed tar", where, strings.TrimPrefix(err.Error(), "archive/tar: "))
}

func (x *Extractor) entry(t *tar.Reader, h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if x.entries++; x.entries > maxEntries {
		return badEntry(h.Name, "the archive has more than %d entries", maxEntries)
	}
	name, err := CleanName(h.Name)
	if err != nil {
		return err
	}
	x.last = name
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return badEntry(h.Name, "the root must be a folder")
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
		return badEntry(name, "must not be a device")
	case tar.TypeFifo:
		return badEntry(name, "must not be a FIFO")
	default:
		return badEntry(name, "unknown type of entry %q", h.Typeflag)
	}
	return x.explain(name, err)
}

// explain turns an error of the kernel about an entry into an InputError, if the archive is at fault.
func (x *Extractor) explain(name string, err error) error {
	var bad *InputError
	switch {
	case err == nil, errors.As(err, &bad):
		return err
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return badEntry(name, "a part of the path is not a folder")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return badEntry(name, "the files exceed %s", diskLimit(x.MaxBytes))
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return badEntry(name, "must not replace a folder that has files")
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		return badEntry(name, "the file system refuses the name")
	case x.in.err != nil:
		return x.in.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badEntry(name, "the archive ends within this entry")
	default:
		return fmt.Errorf("unpack %q: %w", name, err)
	}
}

func (x *Extractor) file(t *tar.Reader, h *tar.Header, name string) error {
	if h.Size < 0 || x.MaxBytes > 0 && h.Size > x.MaxBytes-x.bytes {
		return badEntry(name, "%s of files exceed %s", size(float64(x.bytes)+float64(h.Size)), diskLimit(x.MaxBytes))
	}
	x.bytes += h.Size
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	mode := uint32(h.Mode)&0o777 | 0o600 //nolint:gosec // masked
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	fd := -1
	err = replace(at, base, func() (err error) {
		fd, err = OpenAt(at, base, flags, mode)
		return err
	})
	if err != nil {
		return err
	}
	err = errors.Join(x.fill(fd, t), x.chown(fd))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	setTime(at, base, h.ModTime)
	x.notePy(name)
	return nil
}

// PythonFiles are two .py files of a Workspace: the first, and the first that has another name.
type PythonFiles struct{ First, Other string }

// notePy notes a regular file for the choice of an entrypoint.
func (x *Extractor) notePy(name string) {
	switch {
	case !strings.HasSuffix(name, ".py"):
	case x.Python.First == "":
		x.Python.First = name
	case x.Python.Other == "" && name != x.Python.First:
		x.Python.Other = name
	}
}

// fill writes the content of an entry. Zeros become holes, so a small archive of large holes takes little room.
func (x *Extractor) fill(fd int, t *tar.Reader) error {
	size := int64(0)
	for {
		n, err := t.Read(x.buf)
		size += int64(n)
		for data := x.buf[:n]; len(data) > 0; {
			w, err := IgnoringEINTR(func() (int, error) { return writePart(fd, data) })
			if err != nil {
				return err
			}
			data = data[w:]
		}
		if x.Progress != nil && n > 0 {
			x.Progress(x.in.read)
		}
		if errors.Is(err, io.EOF) {
			return extend(fd, size)
		}
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) && x.in.err == nil {
				return badEntry(x.last, "%s", strings.TrimPrefix(err.Error(), "archive/tar: "))
			}
			return err
		}
	}
}

// extend gives a file that ends with a hole its size.
func extend(fd int, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == size {
		return err
	}
	return unix.Ftruncate(fd, size)
}

// writePart writes the begin of data, or leaves a hole for zeros. It returns how many bytes that are.
func writePart(fd int, data []byte) (int, error) {
	const block = 4 << 10 // the kernel's unit
	isHole := func(i int) bool {
		b := data[i:min(i+block, len(data))]
		return b[0] == 0 && bytes.Count(b, []byte{0}) == len(b)
	}
	hole, end := isHole(0), block
	for end < len(data) && isHole(end) == hole {
		end += block
	}
	end = min(end, len(data))
	if !hole {
		return unix.Write(fd, data[:end])
	}
	_, err := unix.Seek(fd, int64(end), io.SeekCurrent)
	return end, err
}

func (x *Extractor) folder(h *tar.Header, name string) error {
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	st, err := Lstat(at, base)
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		if err := clearEntry(at, base); err != nil {
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

// symlink makes a link that stays inside as it is written. finish checks where it leads when all links exist.
func (x *Extractor) symlink(h *tar.Header, name string) error {
	target := h.Linkname
	if target == "" || path.IsAbs(target) || Leaves(path.Join(path.Dir(name), target)) { //nolint:gosec // this is the check itself
		return badEntry(name, "the link must stay inside the work folder (it leads to %q)", target)
	}
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if err := replace(at, base, func() error { return unix.Symlinkat(target, at, base) }); err != nil {
		return err
	}
	if err := x.chownLink(at, base); err != nil {
		return err
	}
	x.links = append(x.links, name)
	return nil
}

// hardlink makes another name for a regular file of this archive.
func (x *Extractor) hardlink(h *tar.Header, name string) error {
	target, err := CleanName(h.Linkname)
	if err != nil {
		return badEntry(name, "the hard link must stay inside the work folder (it leads to %q)", h.Linkname)
	}
	if target == name {
		return badEntry(name, "the hard link must not lead to itself")
	}
	from := dirStack{root: x.dirs.root}
	defer from.close()
	targetAt, err := from.enter(path.Dir(target), false)
	if err != nil {
		return badEntry(name, "the hard link leads to %q, which does not exist", target)
	}
	st, err := Lstat(targetAt, path.Base(target))
	if err != nil {
		return badEntry(name, "the hard link leads to %q, which does not exist", target)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return badEntry(name, "the hard link must lead to a regular file (it leads to %q)", target)
	}
	at, err := x.dirs.enter(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	err = replace(at, base, func() error { return unix.Linkat(targetAt, path.Base(target), at, base, 0) })
	if err == nil {
		x.notePy(name)
	}
	return err
}

// replace makes the entry base. If there is one already, it is removed first.
func replace(at int, base string, make func() error) error {
	err := make()
	if errors.Is(err, unix.EEXIST) {
		if err = clearEntry(at, base); err == nil {
			err = make()
		}
	}
	return err
}

// clearEntry removes what a later entry of the same name replaces, except a folder that has files.
func clearEntry(at int, base string) error {
	err := unix.Unlinkat(at, base, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(at, base, unix.AT_REMOVEDIR)
	}
	return err
}

// finish sets the modes and times of folders, and checks where links lead. Of two entries of the same folder the last counts.
func (x *Extractor) finish() error {
	for _, f := range x.folders {
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
	root, err := os.OpenRoot(x.Root.Name())
	if err != nil {
		return fmt.Errorf("check links: %w", err)
	}
	defer root.Close() //nolint:errcheck // read only
	for _, name := range x.links {
		// Each link stays inside as it is written, but several together may not, as in a/b → ../.., c → a/b/...
		_, err := root.Stat(name)
		if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) {
			continue // it stays inside, or no program can follow it either
		}
		return badEntry(name, "the link must stay inside the work folder")
	}
	return nil
}

func (x *Extractor) chown(fd int) error {
	if !x.Own {
		return nil
	}
	return unix.Fchown(fd, x.UID, x.GID)
}

// chownLink gives the link base to UID and GID.
func (x *Extractor) chownLink(at int, base string) error {
	if !x.Own {
		return nil
	}
	fd, err := OpenAt(at, base, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	err = unix.Fchownat(fd, "", x.UID, x.GID, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EBADF) {
		// gVisor accepts no O_PATH descriptor here. It has only the container's files.
		err = unix.Fchownat(at, base, x.UID, x.GID, unix.AT_SYMLINK_NOFOLLOW)
	}
	return errors.Join(err, unix.Close(fd))
}

// setTime sets a file's time as far as the file system can, and ignores errors.
func setTime(at int, name string, t time.Time) {
	ts, err := unix.TimeToTimespec(t)
	if err != nil || t.IsZero() {
		return
	}
	_ = unix.UtimesNanoAt(at, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW) // see above
}

// Leaves reports whether a clean relative path leads out of its start.
func Leaves(p string) bool {
	return p == ".." || strings.HasPrefix(p, "../") || path.IsAbs(p)
}
