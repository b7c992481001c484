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
	"slices"
	"strings"
)

// outputFolder makes dir, unless it is empty, and checks that it can be written. A bad folder is then an error before the program
// runs.
func outputFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return fmt.Errorf("--output %s: %w", dir, err)
	}
	if !writable(dir) {
		return fmt.Errorf("--output: must be a folder that can be written (got %q)", dir)
	}
	return nil
}

// saveArtifacts writes an execution's artifacts below dir. The archive comes from an untrusted program. Therefore only regular
// files are saved, and nothing is written outside dir, even if dir contains a link. If a file cannot be saved, the others still
// are. Hidden files are saved only if all is set.
func saveArtifacts(d *target, id, dir string, all bool) (saved []string, err error) {
	archive, err := d.Artifacts(d.ctx, id)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
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
		if h.Typeflag != tar.TypeReg || !all && hidden(h.Name) {
			continue
		}
		if err := saveFile(root, h, t); err != nil {
			failed = append(failed, fmt.Errorf("%q: %w", h.Name, err))
			continue
		}
		saved = append(saved, path.Clean(h.Name))
	}
}

// hidden reports whether a part of a path begins with a dot, or is Python's cache folder.
func hidden(name string) bool {
	return slices.ContainsFunc(strings.Split(path.Clean(name), "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".." || part == "__pycache__"
	})
}

// maxSaid bounds the number of names in the message about saved files.
const maxSaid = 10

// saidOf returns the message about the files that were saved in dir.
func saidOf(saved []string, dir string, named bool) string {
	switch {
	case len(saved) == 0 && named:
		return "no file matches --artifact: nothing is saved in " + dir
	case len(saved) == 0:
		return "no new or changed file: nothing is saved in " + dir
	}
	names := strings.Join(saved[:min(len(saved), maxSaid)], ", ")
	if more := len(saved) - maxSaid; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "saved in " + dir + ": " + names
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
