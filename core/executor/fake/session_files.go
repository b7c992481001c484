package fake

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// maxListed is the bound of executor.SessionFiles on the length of a list.
const maxListed = 10_000

func errPath(code executor.Code, name, message string) error {
	return executor.FieldErrorf(code, "path", "%q %s", name, message)
}

// place returns the clean form of a path, without resolving links. It refuses a path out of the work folder, also through a
// link.
func (s *session) place(name string) (string, error) {
	if name == "" || name == "." {
		return ".", nil
	}
	clean, err := inside(strings.TrimSuffix(name, "/"), ".")
	if err != nil || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") {
		return "", errPath(executor.Invalid, name, "leads out of the work folder")
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	for at := clean; at != "."; at = path.Dir(at) {
		if f := s.tree.files[at]; f != nil && f.link != "" {
			if _, err := inside(f.link, path.Dir(at)); err != nil {
				return "", errPath(executor.Invalid, name, "leads out of the work folder")
			}
		}
	}
	return clean, nil
}

// ListFiles implements executor.SessionFiles.
func (b *Backend) ListFiles(_ context.Context, id, name string, recursive bool) ([]executor.File, error) {
	s, err := b.session(id)
	if err != nil {
		return nil, err
	}
	dir, err := s.place(name)
	if err != nil {
		return nil, err
	}
	found := map[string]executor.File{}
	for _, file := range s.tree.names() {
		rest, ok := below(dir, file)
		if !ok {
			continue
		}
		first, _, deeper := strings.Cut(rest, "/")
		for at := path.Dir(rest); at != "."; at = path.Dir(at) {
			if recursive || at == first {
				full := path.Join(dir, at)
				found[full] = executor.File{Path: full, Directory: true, Mode: 0o755}
			}
		}
		if recursive || !deeper {
			found[file] = s.tree.file(file)
		}
	}
	if len(found) == 0 && !s.isFolder(dir) {
		return nil, errPath(executor.NotFound, name, "does not exist")
	}
	if len(found) > maxListed {
		return nil, executor.Errorf(executor.Exhausted, "more than %d files", maxListed)
	}
	list := []executor.File{}
	for _, f := range found {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b executor.File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// below returns the path of file relative to dir, and whether file lies in dir.
func below(dir, file string) (string, bool) {
	if dir == "." {
		return file, true
	}
	return strings.CutPrefix(file, dir+"/")
}

func (t *tree) file(name string) executor.File {
	f := t.get(name)
	if f == nil {
		return executor.File{Path: name, Mode: 0o777}
	}
	return executor.File{Path: name, Directory: f.folder, SizeBytes: int64(len(f.data)), Mode: uint32(f.mode & 0o777), ModTime: f.time} //nolint:gosec // nine bits
}

// ReadFile implements executor.SessionFiles.
func (b *Backend) ReadFile(_ context.Context, id, name string) (executor.File, io.ReadCloser, error) {
	s, err := b.session(id)
	if err != nil {
		return executor.File{}, nil, err
	}
	clean, err := s.place(name)
	if err != nil {
		return executor.File{}, nil, err
	}
	f := s.tree.get(clean)
	switch {
	case f == nil && s.isFolder(clean), f != nil && f.pipe:
		return executor.File{}, nil, errPath(executor.Invalid, name, "is not a regular file")
	case f == nil:
		return executor.File{}, nil, errPath(executor.NotFound, name, "does not exist")
	}
	return s.tree.file(clean), io.NopCloser(bytes.NewReader(f.data)), nil
}

func (s *session) isFolder(name string) bool {
	if name == "." {
		return true
	}
	if f := s.tree.get(name); f != nil && f.folder {
		return true
	}
	return slices.ContainsFunc(s.tree.names(), func(file string) bool { return strings.HasPrefix(file, name+"/") })
}

// WriteFile implements executor.SessionFiles.
func (b *Backend) WriteFile(_ context.Context, id string, target executor.File, r io.Reader) (executor.File, error) {
	s, err := b.session(id)
	if err != nil {
		return executor.File{}, err
	}
	name, size := target.Path, target.SizeBytes
	clean, err := s.place(name)
	if err != nil {
		return executor.File{}, err
	}
	for dir := path.Dir(clean); dir != "."; dir = path.Dir(dir) {
		if f := s.tree.get(dir); f != nil && !f.folder {
			return executor.File{}, errPath(executor.Invalid, name, "leads through what is no folder")
		}
	}
	if old := s.tree.get(clean); target.Directory && (old == nil || old.folder) {
		if !s.isFolder(clean) {
			_ = s.tree.put(clean, &file{folder: true, mode: 0o755}, -1) // without a limit it cannot fail
		}
		return executor.File{Path: clean, Directory: true, Mode: 0o755}, nil
	} else if s.isFolder(clean) || old != nil && old.pipe || target.Directory {
		return executor.File{}, errPath(executor.Invalid, name, "is not a regular file")
	}
	limit := int64(-1)
	if s.caps.Disk && s.limits.DiskBytes > 0 {
		limit = s.limits.DiskBytes
	}
	if limit >= 0 {
		if size > limit {
			return executor.File{}, executor.FieldErrorf(executor.Exhausted, "config.disk_mb", "%d bytes are more than the disk limit", size)
		}
		r = io.LimitReader(r, limit+1)
	}
	data, err := io.ReadAll(r)
	switch {
	case err != nil:
		return executor.File{}, err
	case size >= 0 && int64(len(data)) != size:
		return executor.File{}, executor.Errorf(executor.Invalid, "the content has %d bytes, %d were announced", len(data), size)
	}
	if err := s.tree.put(clean, &file{data: data, mode: int64(cmp.Or(target.Mode, 0o644)), changed: true}, limit); err != nil {
		return executor.File{}, executor.FieldErrorf(executor.Exhausted, "config.disk_mb", "%v", err)
	}
	return s.tree.file(clean), nil
}

// RemoveFile implements executor.SessionFiles.
func (b *Backend) RemoveFile(_ context.Context, id, name string) error {
	s, err := b.session(id)
	if err != nil {
		return err
	}
	clean, err := inside(strings.TrimSuffix(name, "/"), ".")
	if err != nil || clean == "." {
		return errPath(executor.Invalid, name, "is not a path in the work folder")
	}
	if clean, err = s.parent(name, clean); err != nil {
		return err
	}
	gone := false
	for _, file := range s.tree.names() {
		if file == clean || strings.HasPrefix(file, clean+"/") {
			s.tree.remove(file)
			gone = true
		}
	}
	if !gone {
		return errPath(executor.NotFound, name, "does not exist")
	}
	return nil
}

// parent checks the folders on the way to clean. clean itself may be a link.
func (s *session) parent(name, clean string) (string, error) {
	if _, err := s.place(path.Dir(clean)); err != nil {
		return "", errPath(executor.Invalid, name, "leads out of the work folder")
	}
	return clean, nil
}
