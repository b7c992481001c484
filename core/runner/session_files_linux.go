package runner

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// writingName begins the name of a file that is not whole yet. Such files are not listed.
const writingName = ".pyexec-writing-"

// Files are reached through an os.Root, which follows no link out of the folder whatever the program does meanwhile, and
// only by clean names: a name that ends in a slash would make it follow a last link (CVE-2026-39822).

// fileName checks a path and returns it clean; "." is the root.
func fileName(name string) (string, error) {
	if name == "" {
		return ".", nil
	}
	clean, err := cleanName(name)
	if err != nil {
		return "", executor.FieldErrorf(executor.Invalid, "path", "%v", err)
	}
	return clean, nil
}

// fileError says in the contract's words what the file system said.
func fileError(name string, err error) error {
	var said *executor.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		return said
	case errors.Is(err, fs.ErrNotExist):
		// With its field: without one it would mean that the session is not there.
		return executor.FieldErrorf(executor.NotFound, "path", "%q is not there", name)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return executor.Errorf(executor.Exhausted, "%q does not fit into the disk limit", name)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENXIO), errors.Is(err, fs.ErrExist),
		errors.Is(err, fs.ErrInvalid), strings.Contains(err.Error(), "path escapes from parent"): // os.Root has no name for it
		return executor.FieldErrorf(executor.Invalid, "path", "%q: %v", name, bare(err))
	default:
		return executor.Errorf(executor.Internal, "%q: %w", name, err)
	}
}

// bare is what was wrong, without the names of the machine.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func describeFile(name string, info fs.FileInfo) executor.File {
	f := executor.File{
		Path: strings.ToValidUTF8(name, "\uFFFD"), Directory: info.IsDir(), Mode: uint32(info.Mode().Perm()), ModTime: sayable(info.ModTime()),
	}
	if !f.Directory {
		f.SizeBytes = info.Size()
	}
	return f
}

// files returns the root that calls work in; it is closed by the end of the session.
func (s *session) listFiles(k *hostCall) error {
	name, err := fileName(k.Path)
	if err != nil {
		return err
	}
	if name, err = s.within(name, true); err != nil {
		return fileError(k.Path, err)
	}
	l := lister{session: s, call: k}
	if err := l.folder(name, 0); err != nil {
		return err
	}
	return l.flush()
}

// lister sends the entries of a folder, some at a time.
type lister struct {
	session *session
	call    *hostCall
	files   []executor.File
	bytes   int
	count   int
}

func (l *lister) folder(name string, depth int) error {
	if err := l.call.ctx.Err(); err != nil {
		return executor.Errorf(executor.Unavailable, "%w", err)
	}
	dir, err := l.session.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_DIRECTORY, 0)
	if err != nil {
		if depth > 0 {
			return nil //nolint:nilerr // it went while we looked, or nobody may read it
		}
		return fileError(name, err)
	}
	// One more than allowed is enough to know; so a folder of millions costs no memory.
	names, err := dir.Readdirnames(maxListed + 1 + 2)
	if err = errors.Join(err, dir.Close()); err != nil && !errors.Is(err, io.EOF) {
		return fileError(name, err)
	}
	slices.SortFunc(names, cmp.Compare[string])
	for _, base := range names {
		if strings.HasPrefix(base, writingName) {
			continue
		}
		at := path.Join(name, base)
		info, err := l.session.root.Lstat(at)
		if err != nil {
			continue // it went
		}
		link := info.Mode()&fs.ModeSymlink != 0
		if link {
			if target, err := l.session.root.Stat(at); err == nil {
				info = target // else it leads nowhere, or out: it is listed as itself
			}
		}
		if err := l.add(describeFile(at, info)); err != nil {
			return err
		}
		if l.call.Recursive && info.IsDir() && !link && depth < maxDepth {
			if err := l.folder(at, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lister) add(f executor.File) error {
	if l.count++; l.count > maxListed {
		return executor.Errorf(executor.Exhausted, "more than %d files", maxListed)
	}
	l.files = append(l.files, f)
	if l.bytes += len(f.Path) + 200; l.bytes < chunkBytes {
		return nil
	}
	return l.flush()
}

func (l *lister) flush() error {
	if len(l.files) == 0 {
		return nil
	}
	err := l.call.out.json(frameSessionReply, sessionReply{N: l.call.N, More: true, Files: l.files})
	l.files, l.bytes = nil, 0
	return err
}

func (s *session) readFile(k *hostCall) error {
	name, err := fileName(k.Path)
	if err != nil {
		return err
	}
	if name, err = s.within(name, true); err != nil {
		return fileError(k.Path, err)
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not keep us
	if err != nil {
		return fileError(k.Path, err)
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return fileError(k.Path, err)
	}
	if !info.Mode().IsRegular() {
		return executor.FieldErrorf(executor.Invalid, "path", "%q is not a regular file", k.Path)
	}
	file := describeFile(name, info)
	if err := k.out.json(frameSessionReply, sessionReply{N: k.N, More: true, File: &file}); err != nil {
		return err
	}
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(buf)
	const at = frameHeader + callHeader
	copy((*buf)[frameHeader:], callPayload(k.N))
	// What is appended meanwhile is not part of it: a file that grows for ever has an end, too.
	for left := file.SizeBytes; left > 0; {
		room, err := k.credit.take(int(min(left, chunkBytes)))
		if err != nil {
			return executor.Errorf(executor.Unavailable, "%w", err)
		}
		n, err := io.ReadFull(f, (*buf)[at:at+room])
		if n > 0 {
			if err := k.out.framed(frameSessionFile, (*buf)[:at+n]); err != nil {
				return err
			}
		}
		if err != nil {
			return executor.Errorf(executor.Conflict, "%q changed while it was read", k.Path)
		}
		left -= int64(n)
	}
	return nil
}

func (s *session) writeFile(k *hostCall) (*executor.File, error) {
	name, err := fileName(k.Path)
	if err != nil {
		return nil, err
	}
	if name == "." {
		return nil, executor.FieldErrorf(executor.Invalid, "path", "it names the work folder itself")
	}
	if strings.HasPrefix(path.Base(name), writingName) {
		return nil, executor.FieldErrorf(executor.Invalid, "path", "%q: names that begin with %s are reserved", k.Path, writingName)
	}
	limit := s.start.Limits.DiskBytes
	if limit > 0 && k.Size > limit {
		return nil, executor.Errorf(executor.Exhausted, "%q does not fit into the disk limit", k.Path)
	}
	// A link is replaced, as long as it does not lead out: that would not be what its name promises.
	if _, err = s.within(name, true); err == nil {
		name, err = s.within(name, false)
	}
	if err != nil {
		return nil, fileError(k.Path, err)
	}
	switch info, err := s.root.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		return nil, executor.FieldErrorf(executor.Invalid, "path", "%q is not a regular file", k.Path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fileError(k.Path, err)
	}
	f, temp, made, err := s.begin(path.Dir(name))
	if err != nil {
		s.unmake(made)
		return nil, fileError(k.Path, err)
	}
	file, err := s.fill(f, k, name)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		_ = s.root.Remove(temp) // it is no file of anybody's
		s.unmake(made)
		return nil, fileError(k.Path, err)
	}
	return file, nil
}

// fill writes what the host sends.
func (s *session) fill(f *os.File, k *hostCall, name string) (*executor.File, error) {
	limit := int64(-1)
	if max := s.start.Limits.DiskBytes; max > 0 {
		limit = max
		if s.folder.disk == nil { // else the file system itself knows
			limit -= s.used(max)
		}
	}
	var from io.Reader = k.body
	if limit >= 0 {
		from = io.LimitReader(k.body, limit+1)
	}
	n, err := io.Copy(struct{ io.Writer }{f}, from)
	if err == nil && limit >= 0 && n > limit {
		err = unix.ENOSPC
	}
	if errors.Is(err, errStoppedCall) {
		err = executor.Errorf(executor.Unavailable, "%w", err)
	}
	if err == nil && k.Size >= 0 && n != k.Size {
		err = executor.FieldErrorf(executor.Invalid, "size", "%d bytes were announced and %d came", k.Size, n)
	}
	if cfg := s.agent.cfg; err == nil && cfg.UID != 0 {
		err = f.Chown(cfg.UID, cfg.GID)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file := describeFile(name, info)
	return &file, nil
}

// begin opens a file of no name yet in a folder, which it makes where it is not there, and returns what it made on the way.
func (s *session) begin(dir string) (f *os.File, temp string, made []string, err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	temp = path.Join(dir, writingName+hex.EncodeToString(id[:]))
	s.making.Lock() // another upload that fails takes back the folders that it has made
	defer s.making.Unlock()
	if made, err = s.makeFolders(dir); err != nil {
		return nil, temp, made, err
	}
	f, err = s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	return f, temp, made, err
}

// makeFolders makes the folders on the way to a file, the program's own, and returns those that were not there.
func (s *session) makeFolders(dir string) (made []string, err error) {
	if dir == "." {
		return nil, nil
	}
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		err := s.root.Mkdir(at, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue // whatever it is, the next step shows
		}
		if err != nil {
			return made, err
		}
		made = append(made, at)
		if err := s.ownFolder(at); err != nil {
			return made, err
		}
	}
	return made, nil
}

// ownFolder gives a folder of ours to the program. It takes a folder and nothing else, by its descriptor: the program may
// have put a link, or another name of a file outside, in its place.
func (s *session) ownFolder(name string) error {
	cfg := s.agent.cfg
	if cfg.UID == 0 {
		return nil
	}
	dir, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Chown(cfg.UID, cfg.GID), dir.Close())
}

// unmake takes back the folders that were made for a file that did not come, as long as nothing else is in them.
func (s *session) unmake(made []string) {
	s.making.Lock()
	defer s.making.Unlock()
	for _, dir := range slices.Backward(made) {
		if info, err := s.root.Lstat(dir); err != nil || !info.IsDir() || s.root.Remove(dir) != nil {
			return
		}
	}
}

// used measures the work folder, no further than most.
func (s *session) used(most int64) int64 {
	var sum int64
	errEnough := errors.New("enough")
	w := walk{visit: func(_ int, _, _ string, st unix.Stat_t) error {
		if sum += st.Blocks * 512; sum > most {
			return errEnough
		}
		return nil
	}}
	_ = w.files(s.folder.fd()) // what cannot be read is not counted
	return min(sum, most)
}

func (s *session) removeFile(name string) error {
	clean, err := fileName(name)
	if err != nil {
		return err
	}
	if clean == "." {
		return executor.FieldErrorf(executor.Invalid, "path", "%q stays as long as the session", name)
	}
	if clean, err = s.within(clean, false); err != nil {
		return fileError(name, err)
	}
	if _, err := s.root.Lstat(clean); err != nil {
		return fileError(name, err)
	}
	return fileError(name, s.root.RemoveAll(clean))
}
