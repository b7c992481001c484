package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// instanceName is the file that makes a folder a data folder.
const instanceName = "instance"

// DataDirShared returns why the folder path of that mode cannot become a data folder, which no other user may enter: it is no data folder yet,
// and holds other things. It may have other users for a reason then, like /srv or a home folder. It returns nil if it can.
func DataDirShared(path string, mode fs.FileMode) error {
	if mode&0o077 == 0 {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(path, instanceName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // of a volume
			return fmt.Errorf("%s is open to other users (mode %04o) and holds other files: name a folder of its own, or run chmod 700 on it", path, mode)
		}
	}
	return nil
}
