package session

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// writingName begins the names of files that are not whole yet. They are not listed.
const writingName = ".pyexec-writing-"

// Files are opened through an os.Root, which follows no link out of the folder whatever the program does meanwhile. Names are
// clean, because os.Root follows a last link in a name that ends in a slash (CVE-2026-39822).

// fileName checks a path and returns it clean. "." is the work folder.
func fileName(name string) (string, error) {
	if name == "" {
		return ".", nil
	}
	if !filepath.IsLocal(name) {
		return "", executor.FieldErrorf(executor.Invalid, "path", "must stay inside the session folder (got %q)", name)
	}
	clean, err := archive.CleanName(name)
	if err != nil {
		return "", executor.FieldErrorf(executor.Invalid, "path", "%v", err)
	}
	return clean, nil
}

// fileError returns the contract's error for an error of the file system.
func fileError(name string, err error) error {
	var said *executor.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		return said
	case errors.Is(err, fs.ErrNotExist):
		// Without a field, not_found would mean that the session does not exist.
		return executor.FieldErrorf(executor.NotFound, "path", "%q does not exist", name)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return executor.Errorf(executor.Exhausted, "%q: the session's files exceed disk_mb", name)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENXIO), errors.Is(err, fs.ErrExist),
		errors.Is(err, fs.ErrInvalid), strings.Contains(err.Error(), "path escapes from parent"): // os.Root has no name for it
		return executor.FieldErrorf(executor.Invalid, "path", "%q: %v", name, archive.WithoutPath(err))
	default:
		return executor.Errorf(executor.Internal, "%q: %w", name, err)
	}
}

func describeFile(name string, info fs.FileInfo) executor.File {
	f := executor.File{
		Path: strings.ToValidUTF8(name, "\uFFFD"), Directory: info.IsDir(), Mode: uint32(info.Mode().Perm()), ModTime: archive.EncodableTime(info.ModTime()),
	}
	if !f.Directory {
		f.SizeBytes = info.Size()
	}
	return f
}

// ListFiles sends the entries of the folder k.Path, with those below it if k.Recursive.
func (s *Session) ListFiles(k *Request) error {
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
	session *Session
	call    *Request
	files   []executor.File
	bytes   int
	count   int
}

func (l *lister) folder(name string, depth int) error {
	if err := l.call.Ctx.Err(); err != nil {
		return executor.Errorf(executor.Unavailable, "%w", err)
	}
	dir, err := l.session.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_DIRECTORY, 0)
	if err != nil {
		if depth > 0 {
			return nil //nolint:nilerr // it has gone meanwhile, or cannot be read
		}
		return fileError(name, err)
	}
	// One more than allowed is enough, so a folder with millions of files takes no memory.
	names, err := dir.Readdirnames(protocol.MaxListed + 1 + 2)
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
		if l.call.Recursive && info.IsDir() && !link && depth < archive.MaxDepth {
			if err := l.folder(at, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lister) add(f executor.File) error {
	if l.count++; l.count > protocol.MaxListed {
		return executor.Errorf(executor.Exhausted, "the folder has more than %d files", protocol.MaxListed)
	}
	l.files = append(l.files, f)
	if l.bytes += len(f.Path) + 200; l.bytes < protocol.ChunkBytes {
		return nil
	}
	return l.flush()
}

func (l *lister) flush() error {
	if len(l.files) == 0 {
		return nil
	}
	err := l.call.Out.SendJSON(protocol.FrameSessionReply, protocol.SessionReply{N: l.call.N, More: true, Files: l.files})
	l.files, l.bytes = nil, 0
	return err
}

func (s *Session) ReadFile(k *Request) error {
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
		return executor.FieldErrorf(executor.Invalid, "path", "must be a regular file (got %q)", k.Path)
	}
	file := describeFile(name, info)
	if err := k.Out.SendJSON(protocol.FrameSessionReply, protocol.SessionReply{N: k.N, More: true, File: &file}); err != nil {
		return err
	}
	buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer protocol.ChunkPool.Put(buf)
	const at = protocol.HeaderBytes + protocol.CallHeaderBytes
	copy((*buf)[protocol.HeaderBytes:], protocol.CallPayload(k.N))
	// Bytes that are appended meanwhile are not sent, so reading a file that grows for ever ends.
	for left := file.SizeBytes; left > 0; {
		room, err := k.Credit.Take(int(min(left, protocol.ChunkBytes)))
		if err != nil {
			return executor.Errorf(executor.Unavailable, "%w", err)
		}
		n, err := io.ReadFull(f, (*buf)[at:at+room])
		if n > 0 {
			if err := k.Out.SendBuffer(protocol.FrameSessionFile, (*buf)[:at+n]); err != nil {
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

func (s *Session) WriteFile(k *Request) (*executor.File, error) {
	name, err := fileName(k.Path)
	if err != nil {
		return nil, err
	}
	if name == "." {
		return nil, executor.FieldErrorf(executor.Invalid, "path", "must not be the work folder itself")
	}
	if strings.HasPrefix(path.Base(name), writingName) {
		return nil, executor.FieldErrorf(executor.Invalid, "path", "must not begin with %s (got %q)", writingName, k.Path)
	}
	limit := s.Start.Limits.DiskBytes
	if limit > 0 && k.Size > limit {
		return nil, executor.Errorf(executor.Exhausted, "%q: must be at most disk_mb %d (got %d bytes)", k.Path, limit>>20, k.Size)
	}
	// A link is replaced unless it leads out of the folder.
	if _, err = s.within(name, true); err == nil {
		name, err = s.within(name, false)
	}
	if err != nil {
		return nil, fileError(k.Path, err)
	}
	switch info, err := s.root.Stat(name); {
	case k.Folder && err == nil && info.IsDir():
		file := describeFile(name, info)
		return &file, nil
	case k.Folder && errors.Is(err, fs.ErrNotExist):
		return s.writeFolder(k.Path, name)
	case k.Folder && err == nil:
		return nil, executor.FieldErrorf(executor.Invalid, "path", "must be a folder (got %q)", k.Path)
	case err == nil && !info.Mode().IsRegular():
		return nil, executor.FieldErrorf(executor.Invalid, "path", "must be a regular file (got %q)", k.Path)
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

// writeFolder makes a folder and those on its way.
func (s *Session) writeFolder(asked, name string) (*executor.File, error) {
	s.making.Lock()
	made, err := s.makeFolders(name)
	s.making.Unlock()
	if err == nil {
		var info fs.FileInfo
		if info, err = s.root.Stat(name); err == nil {
			file := describeFile(name, info)
			return &file, nil
		}
	}
	s.unmake(made)
	return nil, fileError(asked, err)
}

// fill copies the body of k into f.
func (s *Session) fill(f *os.File, k *Request, name string) (*executor.File, error) {
	limit := int64(-1)
	if max := s.Start.Limits.DiskBytes; max > 0 {
		limit = max
		if s.Folder.Disk == nil { // else the file system itself knows
			limit -= s.used(max)
		}
	}
	var from io.Reader = k.Body
	if limit >= 0 {
		from = io.LimitReader(k.Body, limit+1)
	}
	n, err := io.Copy(struct{ io.Writer }{f}, from)
	if err == nil && limit >= 0 && n > limit {
		err = unix.ENOSPC
	}
	if errors.Is(err, errStoppedCall) {
		err = executor.Errorf(executor.Unavailable, "%w", err)
	}
	if err == nil && k.Size >= 0 && n != k.Size {
		err = executor.FieldErrorf(executor.Invalid, "size", "must be the size of the body (got %d, and %d bytes came)", k.Size, n)
	}
	if cfg := s.sandbox.Config; err == nil && cfg.UID != 0 {
		err = f.Chown(cfg.UID, cfg.GID)
	}
	if mode := fs.FileMode(k.Mode & 0o777); err == nil && mode != 0 {
		err = f.Chmod(mode)
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

// begin opens a new file under a temporary name in dir. It makes folders that do not exist, and returns them.
func (s *Session) begin(dir string) (f *os.File, temp string, made []string, err error) {
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

// makeFolders makes the folders of dir that do not exist, owned by the program, and returns them.
func (s *Session) makeFolders(dir string) (made []string, err error) {
	if dir == "." {
		return nil, nil
	}
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		err := s.root.Mkdir(at, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue // the next step returns the error
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

// ownFolder gives a folder that the runner has made to the program. It opens the folder first, because the program may have put
// a link, or another name of a file outside, in its place.
func (s *Session) ownFolder(name string) error {
	cfg := s.sandbox.Config
	if cfg.UID == 0 {
		return nil
	}
	dir, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Chown(cfg.UID, cfg.GID), dir.Close())
}

// unmake removes the folders that were made for a file that did not come, unless they have other files.
func (s *Session) unmake(made []string) {
	s.making.Lock()
	defer s.making.Unlock()
	for _, dir := range slices.Backward(made) {
		if info, err := s.root.Lstat(dir); err != nil || !info.IsDir() || s.root.Remove(dir) != nil {
			return
		}
	}
}

// used returns the size of the work folder, but at most limit.
func (s *Session) used(limit int64) int64 {
	var sum int64
	errEnough := errors.New("enough")
	w := archive.Walk{Visit: func(_ int, _, _ string, st unix.Stat_t) error {
		if sum += st.Blocks * 512; sum > limit {
			return errEnough
		}
		return nil
	}}
	_ = w.Files(s.Folder.FD()) // what cannot be read is not counted
	return min(sum, limit)
}

func (s *Session) RemoveFile(name string) error {
	clean, err := fileName(name)
	if err != nil {
		return err
	}
	if clean == "." {
		return executor.FieldErrorf(executor.Invalid, "path", "must not be the work folder itself (got %q)", name)
	}
	if clean, err = s.within(clean, false); err != nil {
		return fileError(name, err)
	}
	if _, err := s.root.Lstat(clean); err != nil {
		return fileError(name, err)
	}
	return fileError(name, s.root.RemoveAll(clean))
}
