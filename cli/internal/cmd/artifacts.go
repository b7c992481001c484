package cmd

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/sdk/go/pack"
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

// saveArtifacts writes an execution's artifacts below dir. Hidden files are saved only if all is set.
func saveArtifacts(d *target, id, dir string, all bool) (saved []string, err error) {
	archive, err := d.Artifacts(d.ctx, id)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return pack.Extract(archive, dir, func(name string) bool { return all || !hidden(name) })
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
