package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// walker adds one folder to an Archive.
type walker struct {
	ctx     context.Context
	archive *Archive
	// top is the folder as the user named it; real is it without symbolic links.
	top, real string
	root      *os.Root
	all       bool
	// leave is the folder that is not sent; nil: none.
	leave fs.FileInfo
	warn  func(string)
	files int
	left  int
}

func (a *Archive) addFolder(ctx context.Context, top string, o Options) error {
	realTop, err := filepath.EvalSymlinks(top)
	if err != nil {
		return err
	}
	if realTop, err = filepath.Abs(realTop); err != nil {
		return err
	}
	root, err := os.OpenRoot(realTop)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // read only
	w := &walker{ctx: ctx, archive: a, top: top, real: realTop, root: root, all: o.All, warn: o.Warn}
	if o.Leave != "" {
		w.leave, _ = os.Stat(o.Leave) // a missing folder contains no files
	}
	var sets []ruleSet
	if !w.all {
		sets = inherited(realTop)
	}
	if err := w.walk("", sets); err != nil {
		return err
	}
	if w.files == 0 {
		if w.left > 0 {
			return fmt.Errorf("%s: %w", top, ErrLeftOut)
		}
		return fmt.Errorf("%s: no files in it", top)
	}
	return nil
}

// walk adds a folder's own files before its subfolders, so that the first .py file of the archive is near the top.
func (w *walker) walk(at string, sets []ruleSet) error {
	entries, err := os.ReadDir(filepath.Join(w.real, filepath.FromSlash(at)))
	if err != nil {
		return err
	}
	if !w.all {
		sets = append(slices.Clip(sets), readRules(filepath.Join(w.real, filepath.FromSlash(at), ".gitignore"), at, "")...)
	}
	var folders []fs.DirEntry
	for _, entry := range entries {
		name := path.Join(at, entry.Name())
		if !w.all && w.leftOut(sets, name, entry) {
			w.left++
			continue
		}
		if !utf8.ValidString(name) { // a server refuses a tar that has such a name
			w.warning(name, "the name is not UTF-8")
			continue
		}
		if entry.IsDir() {
			folders = append(folders, entry)
			continue
		}
		if err := w.add(name, entry); err != nil {
			return err
		}
	}
	for _, entry := range folders {
		name := path.Join(at, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if err := w.archive.folder(name, info); err != nil {
			return err
		}
		if err := w.walk(name, sets); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leftOut(sets []ruleSet, name string, entry fs.DirEntry) bool {
	switch entry.Name() {
	case ".git", ".hg", ".svn": // .git is a file in a worktree or submodule
		return true
	}
	if ignored(sets, name, entry.IsDir()) {
		return true
	}
	if !entry.IsDir() {
		return false
	}
	if info, err := entry.Info(); err == nil && w.leave != nil && os.SameFile(info, w.leave) {
		return true
	}
	_, err := os.Lstat(filepath.Join(w.real, filepath.FromSlash(name), "pyvenv.cfg"))
	return err == nil
}

func (w *walker) add(name string, entry fs.DirEntry) error {
	local := filepath.Join(w.real, filepath.FromSlash(name))
	switch entry.Type() {
	case 0:
		w.files++
		return w.archive.file(w.ctx, name, local, func() (*os.File, error) { return os.OpenInRoot(w.real, filepath.FromSlash(name)) })
	case fs.ModeSymlink:
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target, err := w.target(name, local)
		if err != nil {
			return err
		}
		if !utf8.ValidString(target) {
			w.warning(name, "the target of the link is not UTF-8")
			return nil
		}
		w.files++
		return w.archive.link(name, target, info)
	default:
		w.warning(name, "no file")
		return nil
	}
}

// warning tells that a file is left out, and why.
func (w *walker) warning(name, reason string) {
	if w.warn != nil {
		w.warn(fmt.Sprintf("%q: %s: left out", filepath.Join(w.top, filepath.FromSlash(name)), reason))
	}
}

// target returns the target of a link relative to the link, or an error if the target is outside the folder. The target must
// be inside both as text and after the system has resolved it.
func (w *walker) target(name, local string) (string, error) {
	target, err := os.Readlink(local)
	if err != nil {
		return "", err
	}
	leaves := fmt.Errorf("%s: the symbolic link leaves the folder (-> %s)", filepath.Join(w.top, filepath.FromSlash(name)), target)
	relative := target
	if filepath.IsAbs(target) {
		inside, err := filepath.Rel(filepath.Dir(local), target)
		if err != nil || !isLocal(w.real, target) {
			return "", leaves
		}
		relative = inside
	}
	relative = filepath.ToSlash(relative)
	lexical := path.Join(path.Dir(name), relative)
	if lexical == ".." || strings.HasPrefix(lexical, "../") || path.IsAbs(relative) {
		return "", leaves
	}
	if !filepath.IsAbs(target) {
		if _, err := w.root.Stat(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			if reached, evalErr := filepath.EvalSymlinks(local); evalErr != nil || !isLocal(w.real, reached) {
				return "", leaves
			}
		}
		return relative, nil
	}
	if reached, err := filepath.EvalSymlinks(local); err == nil && !isLocal(w.real, reached) {
		return "", leaves
	}
	return relative, nil
}

func isLocal(root, name string) bool {
	relative, err := filepath.Rel(root, name)
	return err == nil && filepath.IsLocal(relative)
}
