package pack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Options change what Folder sends.
type Options struct {
	// All reports whether ignored files, version control and virtual environments are sent, too.
	All bool
	// Leave is a folder that is not sent, such as that of the results of an earlier run; empty: none.
	Leave string
	// Warn takes the names of files that cannot be sent, such as a FIFO, with the reason; nil drops them.
	Warn func(string)
}

// ErrLeftOut means that a folder has files, but the rules leave all of them out. Options.All sends them.
var ErrLeftOut = errors.New("everything in it is left out (.gitignore, version control, virtual environments)")

// Folder returns the Archive of the folder at dir. Files outside of the folder are never sent, even if a link points to them.
func Folder(ctx context.Context, dir string, o Options) (*Archive, error) {
	a := newArchive()
	if err := a.addFolder(ctx, dir, o); err != nil {
		return nil, err
	}
	return a, nil
}

// Files returns the Archive of single files, in their order. Two files of one name are an error.
func Files(ctx context.Context, files ...string) (*Archive, error) {
	a := newArchive()
	for _, file := range files {
		if err := regular(file); err != nil {
			return nil, err
		}
		if err := a.file(ctx, nameOf(file), file, func() (*os.File, error) { return os.Open(file) }); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// File returns the Archive of one file under its base name. The file is the program, also if its name does not end in .py.
func File(ctx context.Context, file string) (*Archive, error) {
	if err := regular(file); err != nil {
		return nil, err
	}
	a := newArchive()
	if err := a.file(ctx, filepath.Base(file), file, func() (*os.File, error) { return os.Open(file) }); err != nil {
		return nil, err
	}
	return a, nil
}

// Text returns the Archive of a file with the given name and content.
func Text(name string, content []byte) (*Archive, error) {
	a := newArchive()
	h := textHeader(name, len(content))
	if err := a.add(entry{header: h, from: name, text: content}); err != nil {
		return nil, err
	}
	return a, nil
}

// regular checks that file can be sent. Opening a FIFO would wait for its writer.
func regular(file string) error {
	if file == "" {
		return errors.New("a file's name must not be empty")
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("must be a file (%s is a folder)", file)
	case !info.Mode().IsRegular():
		return fmt.Errorf("must be a regular file (got %s)", file)
	}
	return nil
}

// nameOf returns the name of a file in the tar: a relative path as it is, else the base name.
func nameOf(file string) string {
	clean := filepath.Clean(file)
	if !filepath.IsLocal(clean) {
		clean = filepath.Base(clean)
	}
	return filepath.ToSlash(clean)
}

// Entrypoint returns the file that runs when a request names none: main.py at the root, else __main__.py at the root, else the first
// file that ends in .py, else "". guessed reports whether the choice was among several .py files. names are the relative paths of
// regular files, with slashes, in archive order.
func Entrypoint(names []string) (name string, guessed bool) {
	first, count, dunder := "", 0, false
	for _, name := range names {
		switch clean := path.Clean(name); {
		case clean == "main.py":
			return clean, false
		case clean == "__main__.py":
			dunder = true
		case strings.HasSuffix(clean, ".py"):
			if count++; count == 1 {
				first = clean
			}
		}
	}
	if dunder {
		return "__main__.py", false
	}
	return first, count > 1
}
