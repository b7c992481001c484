package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrLink says that a name leads over a link, or that a folder on its way was exchanged while it was opened.
var ErrLink = errors.New("leads over a link")

// Real returns folders with their links resolved. A folder that does not exist stays as it is: it may be made later, but not as a link.
func Real(folders []string) []string {
	resolved := make([]string, 0, len(folders))
	for _, dir := range folders {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			real = filepath.Clean(dir)
		}
		resolved = append(resolved, real)
	}
	return resolved
}

// Below returns the first of roots that path is or lies below by its name, and its name from there. All are absolute.
func Below(path string, roots []string) (root, rel string, ok bool) {
	for _, root := range roots {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return root, rel, true
		}
	}
	return "", "", false
}

// OpenRoot opens the folder at path, an absolute name. It follows no link: an error that is ErrLink says that there is one. The caller
// closes the folder.
func OpenRoot(path string) (*os.Root, error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrInvalid}
	}
	if root, err := openRoot(path); !errors.Is(err, errors.ErrUnsupported) {
		return root, err
	}
	return walkTo(path)
}

// walkTo is OpenRoot for systems that cannot do it in one call. It needs the right to read each folder on the way.
func walkTo(path string) (*os.Root, error) {
	start := filepath.VolumeName(path) + string(filepath.Separator)
	at, err := os.OpenRoot(start)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(path, start), string(filepath.Separator)) {
		if name == "" {
			continue
		}
		next, err := enter(at, name)
		_ = at.Close() // nothing was written
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		at = next
	}
	return at, nil
}

// enter opens the folder name of at, unless that is a link. A link that takes the name meanwhile leads to another folder than the one
// that was seen.
func enter(at *os.Root, name string) (*os.Root, error) {
	seen, err := at.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case seen.Mode().Type() == fs.ModeSymlink:
		return nil, fmt.Errorf("%s: %w", name, ErrLink)
	}
	next, err := at.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := next.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = fmt.Errorf("%s: %w", name, ErrLink)
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}
