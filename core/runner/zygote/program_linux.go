package zygote

import (
	"archive/zip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/drivers"
)

//go:embed python/*.py
var program embed.FS

// driver is the name in the archive of drivers.ProgramDriver, which the interpreter runs before it is forked.
const driver = "driver"

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
		err = zipFiles(f, modules)
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

// zipFiles writes the archive of modules and of drivers.ProgramDriver.
func zipFiles(to io.Writer, modules fs.FS) error {
	names, err := fs.Glob(modules, "*.py")
	if err != nil {
		return err
	}
	w := zip.NewWriter(to)
	for _, name := range append(names, driver) {
		text := []byte(drivers.ProgramDriver())
		if name != driver {
			if text, err = fs.ReadFile(modules, name); err != nil {
				return err
			}
		}
		// Stored, because the interpreter needs no zlib then.
		part, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err = part.Write(text); err != nil {
			return err
		}
	}
	return w.Close()
}
