package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	block = 512
	// trailer is the length of the zeros that end a tar.
	trailer = 2 * block
)

// Archive is a tar that is written while it is read. It is immutable and safe for concurrent use.
type Archive struct {
	entries []entry
	size    int64
	// sources holds the local file of each name.
	sources map[string]string
}

// entry is one member of an Archive.
type entry struct {
	header *tar.Header
	// start is the offset of the header in the tar, and head the length of the header.
	start, head int64
	// from names the local file for messages. open opens it; nil: the content is text.
	from string
	open func() (*os.File, error)
	text []byte
}

// Size returns the length of the tar in bytes.
func (a *Archive) Size() int64 { return a.size }

// Names returns the names of the files and links in archive order, with slashes.
func (a *Archive) Names() []string {
	var names []string
	for _, e := range a.entries {
		if e.header.Typeflag != tar.TypeDir {
			names = append(names, e.header.Name)
		}
	}
	return names
}

// Regular returns the names of the regular files in archive order.
func (a *Archive) Regular() []string {
	var names []string
	for _, e := range a.entries {
		if e.header.Typeflag == tar.TypeReg {
			names = append(names, e.header.Name)
		}
	}
	return names
}

// add appends e. It sets the offset of e, which depends on the sizes of the entries before.
func (a *Archive) add(e entry) error {
	head, err := headerBytes(e.header)
	if err != nil {
		return fmt.Errorf("%s: %w", e.from, err)
	}
	e.start, e.head = a.size-trailer, int64(len(head))
	a.entries = append(a.entries, e)
	a.size += e.head + padded(e.header.Size)
	return nil
}

func newArchive() *Archive { return &Archive{size: trailer, sources: map[string]string{}} }

func padded(n int64) int64 { return (n + block - 1) / block * block }

func headerBytes(h *tar.Header) ([]byte, error) {
	var b bytes.Buffer
	err := tar.NewWriter(&b).WriteHeader(h)
	return b.Bytes(), err
}

// file adds a regular file. The file is opened once now, so that a file that cannot be read is an error before anything is sent.
func (a *Archive) file(ctx context.Context, name, from string, open func() (*os.File, error)) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if other, taken := a.sources[name]; taken {
		return fmt.Errorf("%s and %s would both be %s", other, from, name)
	}
	a.sources[name] = from
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: must be a regular file", from)
	}
	h := header(name, info)
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	return a.add(entry{header: h, from: from, open: open})
}

// header has no owner, which has no meaning on another machine.
func header(name string, info fs.FileInfo) *tar.Header {
	mode := int64(info.Mode().Perm())
	return &tar.Header{Name: name, Mode: mode, ModTime: info.ModTime().Truncate(time.Second)}
}

func textHeader(name string, size int) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(size)}
}

// folder adds a directory entry, so that empty folders are sent, too.
func (a *Archive) folder(name string, info fs.FileInfo) error {
	h := header(name+"/", info)
	h.Typeflag = tar.TypeDir
	return a.add(entry{header: h, from: name})
}

// link adds a symbolic link.
func (a *Archive) link(name, target string, info fs.FileInfo) error {
	h := header(name, info)
	h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
	return a.add(entry{header: h, from: name})
}

// content returns the bytes of e after its header, from the offset skip on.
func (e *entry) content(skip int64) (io.Reader, io.Closer, error) {
	size := e.header.Size
	padding := make([]byte, padded(size)-size)
	if skip >= size {
		return bytes.NewReader(padding[skip-size:]), nil, nil
	}
	if e.open == nil {
		return io.MultiReader(bytes.NewReader(e.text[skip:]), bytes.NewReader(padding)), nil, nil
	}
	f, err := e.open()
	if err != nil {
		return nil, nil, err
	}
	if _, err := f.Seek(skip, io.SeekStart); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return io.MultiReader(&exact{file: f, left: size - skip, from: e.from}, bytes.NewReader(padding)), f, nil
}

// exact reads left bytes of a file. A file that became shorter is an error.
type exact struct {
	file *os.File
	left int64
	from string
}

// Read implements io.Reader.
func (x *exact) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, io.EOF
	}
	n, err := x.file.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	if errors.Is(err, io.EOF) {
		return n, fmt.Errorf("%s became shorter while it was read", x.from)
	}
	return n, err
}
