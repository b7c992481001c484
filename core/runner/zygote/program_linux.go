package zygote

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

//go:embed zygote.py
var program []byte

// programFile returns an archive with the program as the module sitecustomize. Its bytes cannot be changed.
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
	w := zip.NewWriter(f)
	// Stored, because the interpreter needs no zlib then.
	part, err := w.CreateHeader(&zip.FileHeader{Name: "sitecustomize.py", Method: zip.Store})
	if err == nil {
		_, err = part.Write(program)
	}
	if err == nil {
		err = w.Close()
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
