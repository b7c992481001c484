package zygote

import (
	"archive/zip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

//go:embed python/*.py
var program embed.FS

// programFile returns an archive with the modules of the program. Its bytes cannot be changed.
func programFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("python", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "python")
	if err := writeProgram(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func writeProgram(f *os.File) error {
	modules, err := fs.Sub(program, "python")
	if err == nil {
		err = zipModules(f, modules)
	}
	if err == nil {
		const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

func zipModules(to io.Writer, modules fs.FS) error {
	names, err := fs.Glob(modules, "*.py")
	w := zip.NewWriter(to)
	for _, name := range names {
		var text []byte
		var part io.Writer
		if text, err = fs.ReadFile(modules, name); err != nil {
			return err
		}
		// Stored, because the interpreter needs no zlib then.
		if part, err = w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store}); err != nil {
			return err
		}
		if _, err = part.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(err, w.Close())
}
