package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// cacheFolder returns the path of a Cache as programs know it.
func (f *Folder) cacheFolder(c protocol.Cache) string { return filepath.Join(f.Temp, cacheName(c)) }

func cacheName(c protocol.Cache) string { return "." + strings.ToLower(c.Variable) }

// linkCaches makes the folders of caches, which the program owns.
func (f *Folder) linkCaches(cfg protocol.Config, caches []protocol.Cache) error {
	if f.shared {
		return nil
	}
	for _, c := range caches {
		if err := f.linkCache(cfg, c); err != nil {
			return fmt.Errorf("cache of %s: %w", c.Variable, err)
		}
	}
	return nil
}

func (f *Folder) linkCache(cfg protocol.Config, c protocol.Cache) (err error) {
	temp := int(f.TempRoot.Fd())
	if err := unix.Mkdirat(temp, cacheName(c), 0o700); err != nil {
		return err
	}
	dir, err := archive.OpenDir(temp, cacheName(c))
	if err != nil {
		return err
	}
	for _, file := range c.Files {
		err = errors.Join(err, unix.Symlinkat(file, dir, filepath.Base(file)))
	}
	if cfg.UID != 0 {
		err = errors.Join(err, unix.Fchown(dir, cfg.UID, cfg.GID))
	}
	return errors.Join(err, unix.Close(dir))
}
