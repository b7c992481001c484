package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Extract writes the files of a tar below dir, and makes dir. The tar comes from a program that is not trusted. Therefore only regular
// files are written, and nothing outside of dir, even if dir contains a link. If a file cannot be written, the others still are. keep
// selects files by name; nil: all. saved has the names of the files that were written, with slashes.
func Extract(r io.Reader, dir string, keep func(name string) bool) (saved []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a folder: nothing is buffered
	var failed []error
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return saved, errors.Join(failed...)
		}
		if err != nil {
			return saved, errors.Join(append(failed, err)...)
		}
		if h.Typeflag != tar.TypeReg || keep != nil && !keep(path.Clean(h.Name)) {
			continue
		}
		if err := saveFile(root, h, t); err != nil {
			failed = append(failed, fmt.Errorf("%q: %w", h.Name, err))
			continue
		}
		saved = append(saved, path.Clean(h.Name))
	}
}

func saveFile(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.FromSlash(path.Clean(h.Name))
	if !filepath.IsLocal(name) || name == "." {
		return errors.New("must be a path inside the folder")
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	// An existing file of this name is removed first, so that the write does not follow a link.
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode := fs.FileMode(0o666)
	if h.Mode&0o111 != 0 {
		mode = 0o777
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
