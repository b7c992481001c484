package batch

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/core/runner/job"
)

// findPrepared reads what a preparation made; nothing if there was none.
func findPrepared(in job.Start) (p job.Prepared, err error) {
	if in.Prepared != "" {
		err = job.ReadInput(in.Prepared, job.PreparedFile, &p)
	}
	return p, err
}

// packed returns the files of a folder as a tar. No process changes the folder meanwhile.
func packed(folder string) io.Reader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, folder)) }()
	return r
}

func pack(w io.Writer, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return packEntry(out, root, path, e)
	})
	return errors.Join(err, out.Close())
}

func packEntry(out *tar.Writer, root *os.Root, path string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil || info.Mode()&fs.ModeSocket != 0 { // a socket has no content, and nobody listens
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = root.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, filepath.ToSlash(link))
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = path, "", ""
	if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, f, info.Size())
	return errors.Join(err, f.Close())
}
