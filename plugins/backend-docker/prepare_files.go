package dockerbackend

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// bringSpec lists the files that a preparation's container gets before it starts. Paths are those inside the container; an
// empty path means no file. All files are in toolsFolder. The preparation removes that folder at its end, so the image does not
// contain them.
type bringSpec struct {
	// bundle is the file with the certificate authorities of this host and of the image.
	bundle string
	// apt is a configuration file of apt that names bundle.
	apt string
	// netrc is the file with the credentials of package indexes.
	netrc string
	// tools reports whether uv is copied. The folder then belongs to the programs' user.
	tools   bool
	folders []broughtFolder
}

// broughtFolder is a folder of this host and its path in the container.
type broughtFolder struct{ from, to string }

// bring copies files into a container that has not started. It works with a remote daemon, and needs no program in the image.
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
	in.CloseWithError(errors.New("the daemon has stopped reading")) // ends pack, if it still writes
	return err
}

// pack writes the files of b as a tar.
func (i *images) pack(out io.Writer, b bringSpec, bundle []byte) error {
	p := packer{Writer: tar.NewWriter(out)}
	if b.tools {
		p.owner = programID
	}
	p.folder(prepareFolder)
	p.folder(toolsFolder)
	if b.bundle != "" {
		p.file(b.bundle, bundle, 0o444)
	}
	if b.apt != "" {
		p.file(b.apt, []byte("Acquire::https::CaInfo \""+b.bundle+"\";\n"), 0o444)
	}
	if b.netrc != "" {
		p.copy(b.netrc, i.settings.netrc, 0o400)
	}
	if b.tools && i.settings.uv != "" {
		p.copy(toolsFolder+"/uv", i.settings.uv, 0o555)
	}
	for _, folder := range b.folders {
		p.copyFolder(folder)
	}
	return p.end()
}

// packer writes files of one owner as a tar. After the first error it writes nothing; end returns that error.
type packer struct {
	*tar.Writer
	owner int
	err   error
}

func (p *packer) entry(path string, kind byte, mode, size int64) {
	if p.err == nil {
		p.err = p.WriteHeader(&tar.Header{
			Name: strings.TrimPrefix(path, "/"), Typeflag: kind, Mode: mode, Size: size, Uid: p.owner, Gid: p.owner, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		})
	}
}

func (p *packer) folder(path string) { p.entry(path, tar.TypeDir, 0o755, 0) }

func (p *packer) file(path string, content []byte, mode int64) {
	p.entry(path, tar.TypeReg, mode, int64(len(content)))
	if p.err == nil {
		_, p.err = p.Write(content)
	}
}

// copy writes the file from of this host as path.
func (p *packer) copy(path, from string, mode int64) {
	f, err := os.Open(from)
	if err != nil {
		p.err = cmp.Or(p.err, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	p.err = cmp.Or(p.err, err)
	if p.err == nil {
		p.entry(path, tar.TypeReg, mode, info.Size())
	}
	if p.err == nil {
		_, p.err = io.CopyN(p, f, info.Size())
	}
}

// copyFolder writes the files of a folder. Like uv and pip, it ignores subfolders, and a missing folder.
func (p *packer) copyFolder(folder broughtFolder) {
	p.folder(folder.to)
	list, err := os.ReadDir(folder.from)
	if !errors.Is(err, fs.ErrNotExist) {
		p.err = cmp.Or(p.err, err)
	}
	for _, e := range list {
		path := filepath.Join(folder.from, e.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			p.copy(folder.to+"/"+e.Name(), path, 0o444)
		}
	}
}

func (p *packer) end() error { return cmp.Or(p.err, p.Close()) }

// maxBundle bounds the certificate authorities that are read from an image, in bytes.
const maxBundle = 4 << 20

// imageBundle returns the certificate authorities that an image trusts; empty if it has none.
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
		return nil, fmt.Errorf("must be a file of at most %d bytes (got type %q, %d bytes)", maxBundle, h.Typeflag, h.Size)
	}
	return io.ReadAll(r)
}
