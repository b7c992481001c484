package cmd

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

// outputFolder makes dir, so that a folder which cannot be written is known before the program has run for hours.
func outputFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return fmt.Errorf("--output %s: %w", dir, err)
	}
	if !writable(dir) {
		return fmt.Errorf("--output %s: nothing can be written there", dir)
	}
	return nil
}

// saveArtifacts writes an execution's artifacts below dir. The archive comes from a program that nobody trusts: only
// regular files are taken, and nothing is written outside dir, not even through a link that lies there already. What
// cannot be saved does not keep the rest from it.
func saveArtifacts(d *door, id, dir string) (saved int, err error) {
	archive, err := d.Artifacts(d.ctx, id)
	if err != nil {
		return 0, err
	}
	defer archive.Close()
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return 0, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // a folder: nothing is buffered
	var failed []error
	for t := tar.NewReader(archive); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return saved, errors.Join(failed...)
		}
		if err != nil {
			return saved, errors.Join(append(failed, err)...)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := saveFile(root, h, t); err != nil {
			failed = append(failed, fmt.Errorf("%q: %w", h.Name, err))
			continue
		}
		saved++
	}
}

func saveFile(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.FromSlash(path.Clean(h.Name))
	if !filepath.IsLocal(name) || name == "." {
		return errors.New("not a name inside the folder")
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	// What has the name now, a link perhaps, goes; it is not written through.
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
