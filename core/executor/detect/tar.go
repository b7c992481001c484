package detect

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
)

// maxFile bounds what is read of one file. A block of metadata stands near the top of its file; a requirements.txt of
// this size is not one.
const maxFile = 4 << 20

// maxNames and maxNameBytes bound how many Python files are remembered while the entrypoint is still unknown. A name in a
// tar may be a megabyte long.
const (
	maxNames     = 1 << 16
	maxNameBytes = 4 << 20
)

// Ask says what is known before a Workspace is read.
type Ask struct {
	// Entrypoint is the file that will run; empty: find it.
	Entrypoint string
	// NoEntrypoint: no file of the Workspace is the program (Spec.Code or Spec.Command is); only requirements.txt counts.
	NoEntrypoint bool
}

// Tar reads a Workspace to its end. An *Error means that what the files say is wrong, any other that r is no readable tar.
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

// collector keeps the few files that can matter, of each the last one of its name, as unpacking would.
type collector struct {
	ask   Ask
	order []string
	// orderBytes is the length of the names in order.
	orderBytes int
	present    map[string]bool
	kept       map[string][]byte
}

func (c *collector) take(h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg {
		// Something else under the name of a file takes its place.
		if c.present[name] {
			c.present[name] = false
			delete(c.kept, name)
		}
		return nil
	}
	wanted := name == requirementsName
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

// candidate records a Python file and reports whether it may be the entrypoint.
func (c *collector) candidate(name string) bool {
	if c.ask.Entrypoint != "" {
		if name != path.Clean(c.ask.Entrypoint) {
			return false // and not remembered: an archive may hold millions
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

// alive is what may still be the entrypoint: the root's two names and the first of all others.
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
	requirements, hasRequirements := c.kept[requirementsName]
	if source, ok := c.kept[f.Entrypoint]; ok && f.Entrypoint != "" {
		if len(source) > maxFile {
			source = source[:maxFile]
		}
		block, ok, err := ParseScript(source)
		if err != nil {
			return f, &Error{File: f.Entrypoint, Err: err}
		}
		if ok {
			f.PythonVersion = block.RequiresPython
			if block.Dependencies != nil {
				f.Requirements = block.Requirements()
				return f, nil
			}
		}
	}
	if hasRequirements {
		if len(requirements) > maxFile {
			return f, &Error{File: requirementsName, Err: fmt.Errorf("it is larger than %d bytes", maxFile)}
		}
		f.Requirements = string(requirements)
	}
	return f, nil
}

// Error says that a file's own statement about its requirements is wrong.
type Error struct {
	File string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
