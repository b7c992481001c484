package dockerbackend

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// bringSpec is what a preparation's container is given before it starts; paths are inside, empty ones are left out. It all
// lies in toolsFolder, which the preparation removes at its end, so that the image has none of it.
type bringSpec struct {
	// bundle gets the authorities that this host trusts, and those that the image trusts.
	bundle string
	// apt gets a configuration of apt that names bundle.
	apt string
	// netrc gets the credentials of package indexes.
	netrc string
	// tools: uv comes along, and the folder belongs to the programs' user.
	tools   bool
	folders []broughtFolder
}

// broughtFolder is a folder of this host.
type broughtFolder struct{ from, to string }

// bring copies files into a container that has not started. That works with a remote daemon, too, and needs nothing in the
// image.
func (i *images) bring(ctx context.Context, id string, b bringSpec) error {
	var bundle []byte
	if b.bundle != "" {
		raw, err := os.ReadFile(i.settings.bundle)
		if err != nil {
			return executor.Errorf(executor.Unavailable, "read the authorities that preparations trust: %w", err)
		}
		bundle = append(append(raw, '\n'), i.imageBundle(ctx, id)...)
	}
	in, out := io.Pipe()
	go func() { out.CloseWithError(i.pack(out, b, bundle)) }()
	err := i.daemon.copyTo(ctx, id, "/", in)
	in.CloseWithError(errors.New("the daemon has stopped reading")) // nobody waits for a reader that is gone
	return err
}

// pack writes what is brought as a tar.
func (i *images) pack(out io.Writer, b bringSpec, bundle []byte) error {
	owner := 0
	if b.tools {
		owner = programID
	}
	w := tar.NewWriter(out)
	entry := func(path string, kind byte, mode, size int64) error {
		return w.WriteHeader(&tar.Header{
			Name: strings.TrimPrefix(path, "/"), Typeflag: kind, Mode: mode, Size: size, Uid: owner, Gid: owner, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		})
	}
	file := func(path string, content []byte, mode int64) error {
		if path == "" {
			return nil
		}
		if err := entry(path, tar.TypeReg, mode, int64(len(content))); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for _, folder := range []string{prepareFolder, toolsFolder} {
		if err := entry(folder, tar.TypeDir, 0o755, 0); err != nil {
			return err
		}
	}
	if err := file(b.bundle, bundle, 0o444); err != nil {
		return err
	}
	if err := file(b.apt, []byte("Acquire::https::CaInfo \""+b.bundle+"\";\n"), 0o444); err != nil {
		return err
	}
	if b.netrc != "" {
		raw, err := os.ReadFile(i.settings.netrc)
		if err != nil {
			return err
		}
		if err := file(b.netrc, raw, 0o400); err != nil {
			return err
		}
	}
	if b.tools && i.settings.uv != "" {
		if err := copyFile(w, entry, i.settings.uv, toolsFolder+"/uv", 0o555); err != nil {
			return err
		}
	}
	for _, folder := range b.folders {
		if err := copyFolder(w, entry, folder); err != nil {
			return err
		}
	}
	return w.Close()
}

// copyFolder writes the packages that lie in a folder: what is in folders below is not looked at by uv and pip either.
func copyFolder(w *tar.Writer, entry func(string, byte, int64, int64) error, folder broughtFolder) error {
	if err := entry(folder.to, tar.TypeDir, 0o755, 0); err != nil {
		return err
	}
	list, err := os.ReadDir(folder.from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // as pip takes it
	}
	for _, e := range list {
		path := filepath.Join(folder.from, e.Name())
		info, failed := os.Stat(path)
		if failed != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := copyFile(w, entry, path, folder.to+"/"+e.Name(), 0o444); err != nil {
			return err
		}
	}
	return err
}

func copyFile(w *tar.Writer, entry func(string, byte, int64, int64) error, from, to string, mode int64) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := entry(to, tar.TypeReg, mode, info.Size()); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, info.Size())
	return err
}

// maxBundle bounds the authorities that are taken from an image.
const maxBundle = 4 << 20

// imageBundle are the authorities that an image trusts; empty: it has none.
func (i *images) imageBundle(ctx context.Context, id string) []byte {
	for _, path := range requirements.SystemBundles() {
		body, err := i.daemon.copyFrom(ctx, id, path)
		if err != nil {
			continue
		}
		raw, err := onlyFile(body)
		body.Close()
		if err == nil && bytes.Contains(raw, []byte("-----BEGIN CERTIFICATE-----")) {
			return raw
		}
	}
	return nil
}

// onlyFile reads the first file of a tar.
func onlyFile(body io.Reader) ([]byte, error) {
	r := tar.NewReader(body)
	h, err := r.Next()
	if err != nil {
		return nil, err
	}
	if h.Typeflag != tar.TypeReg || h.Size > maxBundle {
		return nil, errors.New("is no file of a reasonable size")
	}
	return io.ReadAll(r)
}
