package input

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// archive writes the tar, without owners, which have no meaning on another machine.
type archive struct {
	ctx   context.Context
	spool *spool
	tar   *tar.Writer
	names map[string]string
}

func newArchive(ctx context.Context, s *spool) *archive {
	return &archive{ctx: ctx, spool: s, tar: tar.NewWriter(s), names: map[string]string{}}
}

// file adds a regular file. Size and content are read from the same open file, so that they match.
func (a *archive) file(name, from string) error {
	if err := context.Cause(a.ctx); err != nil {
		return err
	}
	if other, taken := a.names[name]; taken {
		return fmt.Errorf("%s and %s would both be %s", other, from, name)
	}
	a.names[name] = from
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	h := header(name, info)
	h.Size = info.Size()
	if err := a.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	n, err := io.Copy(a.tar, io.LimitReader(&cancellable{a.ctx, f}, h.Size))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", from, err)
	case n < h.Size:
		return fmt.Errorf("%s became shorter while it was read", from)
	}
	return nil
}

func header(name string, info fs.FileInfo) *tar.Header {
	mode := int64(info.Mode().Perm())
	return &tar.Header{Name: name, Mode: mode, ModTime: info.ModTime().Truncate(time.Second)}
}

// folder adds a directory entry, so that empty folders are sent, too.
func (a *archive) folder(name string, info fs.FileInfo) error {
	h := header(name+"/", info)
	h.Typeflag = tar.TypeDir
	return a.tar.WriteHeader(h)
}

// link adds a symbolic link.
func (a *archive) link(name, target string, info fs.FileInfo) error {
	h := header(name, info)
	h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
	return a.tar.WriteHeader(h)
}

// text adds a file with the given content.
func (a *archive) text(name string, content []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	if err != nil {
		return err
	}
	_, err = a.tar.Write(content)
	return err
}

func (a *archive) close() error { return a.tar.Close() }

// cancellable ends a long copy when ctx ends.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c *cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// eachName calls do with the cleaned name of every file and link of a tar.
func eachName(r io.Reader, do func(string)) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag == tar.TypeReg, h.Typeflag == tar.TypeSymlink, h.Typeflag == tar.TypeLink:
			do(path.Clean(h.Name))
		}
	}
}

var errCompressed = errors.New("is compressed: must be an uncompressed .tar (decompress it first)")
