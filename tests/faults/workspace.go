package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Workspace is a copy of the tree in a folder of its own.
type Workspace struct{ Root string }

// Copy copies the files of the work tree at root into a new folder below the system's temporary folder. Remove removes it.
func Copy(ctx context.Context, root string) (*Workspace, error) {
	dir, err := os.MkdirTemp("", "pyexec-faults-")
	if err != nil {
		return nil, err
	}
	w := &Workspace{Root: dir}
	// Programs run as other users read the copy.
	err = os.Chmod(dir, 0o755) //nolint:gosec // see above
	if err == nil {
		err = w.fill(ctx, root)
	}
	if err != nil {
		return nil, errors.Join(err, w.Remove())
	}
	return w, nil
}

// Remove removes the copy.
func (w *Workspace) Remove() error { return os.RemoveAll(w.Root) }

func (w *Workspace) fill(ctx context.Context, root string) error {
	files, err := Tracked(ctx, root)
	if err != nil {
		return err
	}
	for _, name := range files {
		from, to := filepath.Join(root, name), filepath.Join(w.Root, name)
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as above
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return err
			}
			continue
		}
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, data, info.Mode().Perm()) //nolint:gosec // names that git gave
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Tracked lists the files that git tracks below root, and those that it would track, relative to root.
func Tracked(ctx context.Context, root string) ([]string, error) {
	git := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// Apply changes the copy by a patch. undo takes the files back to what they were.
func (w *Workspace) Apply(ctx context.Context, fault Fault) (undo func() error, err error) {
	undo, err = w.keep(fault.Files)
	if err != nil {
		return nil, err
	}
	if err := Applies(ctx, w.Root, fault.Path, false); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// Write changes one file of the copy. undo takes it back to what it was.
func (w *Workspace) Write(name string, content []byte) (undo func() error, err error) {
	undo, err = w.keep([]string{name})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(w.Root, name), content, 0o644); err != nil { //nolint:gosec // a source file
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// keep remembers files, of which some may not exist yet.
func (w *Workspace) keep(names []string) (undo func() error, err error) {
	before := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(w.Root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		before[name] = data // nil where there is none
	}
	return func() error {
		var errs []error
		for name, data := range before {
			path := filepath.Join(w.Root, name)
			if data == nil {
				errs = append(errs, os.RemoveAll(path))
			} else {
				errs = append(errs, os.WriteFile(path, data, 0o644)) //nolint:gosec // it exists, with its mode
			}
		}
		return errors.Join(errs...)
	}, nil
}

// Applies applies a patch to the tree at root, or only checks that it applies.
func Applies(ctx context.Context, root, patch string, checkOnly bool) error {
	args := []string{"apply", "--whitespace=nowarn"}
	if checkOnly {
		args = append(args, "--check")
	}
	git := exec.CommandContext(ctx, "git", append(args, patch)...)
	git.Dir = root
	// In a folder of a repository git apply passes over files that it thinks are elsewhere. It must not look for one above the copy.
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(root))
	if out, err := git.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
