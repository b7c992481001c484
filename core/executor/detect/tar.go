package detect

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
)

// maxFile bounds the bytes that are read of a file. A block of script metadata is near the top of its file. A larger
// requirements.txt, uv.lock or pyproject.toml is an error, if it is needed.
const maxFile = 4 << 20

// maxNames and maxNameBytes bound the names of Python files that are kept while the entrypoint is unknown. A name in a tar may
// be a megabyte long.
const (
	maxNames     = 1 << 16
	maxNameBytes = 4 << 20
)

// Ask tells what is known before a Workspace is read.
type Ask struct {
	// Entrypoint is the file that will run; empty: Tar finds it.
	Entrypoint string
	// NoEntrypoint reports whether the program is Spec.Code or Spec.Command. Only the project's files are then read.
	NoEntrypoint bool
}

// Tar reads a Workspace to its end. An *Error means that a file of the Workspace is invalid. Any other error means that r is
// not a readable tar.
func Tar(r io.Reader, ask Ask) (Found, error) {
	c := collector{ask: ask, kept: map[string][]byte{}, present: map[string]bool{}}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return c.found()
		}
		if err != nil {
			return Found{}, fmt.Errorf("read tar: %w", err)
		}
		if err := c.take(h, archive); err != nil {
			return Found{}, fmt.Errorf("read tar: %q: %w", h.Name, err)
		}
	}
}

// collector keeps the content of the files that are needed. Of files with the same name it keeps the last, as unpacking does.
type collector struct {
	ask Ask
	// order holds the names of Python files in archive order, and orderBytes their total length.
	order      []string
	orderBytes int
	// present tells whether the last entry of a name is a regular file.
	present map[string]bool
	kept    map[string][]byte
}

func (c *collector) take(h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg {
		// An entry that is no regular file replaces an earlier file of the same name.
		if c.present[name] {
			c.present[name] = false
		}
		delete(c.kept, name)
		return nil
	}
	wanted := slices.Contains(projectFiles, name)
	if !c.ask.NoEntrypoint {
		wanted = c.candidate(name) || wanted
	}
	if !wanted {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return err
	}
	c.kept[name] = text
	return nil
}

// candidate records a file and reports whether the file may be the entrypoint.
func (c *collector) candidate(name string) bool {
	if c.ask.Entrypoint != "" {
		if name != path.Clean(c.ask.Entrypoint) {
			return false // not recorded, because an archive may hold millions of files
		}
		c.present[name] = true
		return true
	}
	if !isPython(name) {
		return false
	}
	if _, seen := c.present[name]; !seen {
		full := len(c.order) >= maxNames || c.orderBytes+len(name) > maxNameBytes
		if full && name != mainName && name != dunderName {
			return false
		}
		c.order = append(c.order, name)
		c.orderBytes += len(name)
	}
	c.present[name] = true
	return name == Entrypoint(c.alive())
}

// alive returns the files that may still be the entrypoint: main.py, __main__.py and the first other file.
func (c *collector) alive() []string {
	var names []string
	for _, special := range []string{mainName, dunderName} {
		if c.present[special] {
			names = append(names, special)
		}
	}
	if i := slices.IndexFunc(c.order, func(name string) bool { return c.present[name] }); i >= 0 {
		names = append(names, c.order[i])
	}
	return names
}

// guessed reports whether another .py file could have been meant as well as entrypoint.
func (c *collector) guessed(entrypoint string) bool {
	if entrypoint == "" || entrypoint == mainName || entrypoint == dunderName {
		return false
	}
	return slices.ContainsFunc(c.order, func(name string) bool { return name != entrypoint && c.present[name] })
}

func (c *collector) found() (Found, error) {
	var f Found
	switch {
	case c.ask.NoEntrypoint:
	case c.ask.Entrypoint != "":
		f.Entrypoint = path.Clean(c.ask.Entrypoint)
	default:
		f.Entrypoint = Entrypoint(c.alive())
		f.Guessed = c.guessed(f.Entrypoint)
	}
	var program []byte
	if f.Entrypoint != "" {
		program = c.kept[f.Entrypoint]
	}
	return f, f.require(f.Entrypoint, program, c.kept)
}

// Error tells that a file's requirements or script metadata are invalid.
type Error struct {
	File string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
