package mcpfrontend

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/hostpath"
)

// The bounds of a folder, and of a single script, that is sent to a sandbox.
const (
	maxCopyBytes = 256 << 20
	maxCopyFiles = 20_000
	maxScript    = 8 << 20
)

// leftOut are the names of folders that are not sent. Tools generate them, and a sandbox has no use for them.
var leftOut = []string{".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

// hostFolder is an open folder of the host that the client may use. Its content is reached through root only: who may rename above the
// folder, or in it, can exchange names after the check, but not what is open.
type hostFolder struct {
	path string // without links
	root *os.Root
}

// hostFile is an open script of the host that the client may use.
type hostFile struct {
	path   string // with resolved folders
	opened *os.File
}

// folder checks that the client may use the folder dir, and opens it. name is the argument for errors.
func (p *python) folder(name, dir string) (*hostFolder, error) {
	if dir == "" {
		return nil, valueError("%s must not be empty", name)
	}
	if !filepath.IsAbs(dir) {
		if !p.config.Stdio {
			return nil, valueError("%s must be an absolute path (got %q)", name, dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, valueError("%s: %v", name, err)
		}
		dir = abs
	}
	real, err := filepath.EvalSymlinks(dir)
	var root *os.Root
	if err == nil {
		root, err = p.openRoot(real)
	}
	switch {
	case err == nil:
		return &hostFolder{real, root}, nil
	case p.config.Stdio || p.mayUse(real):
		return nil, notFoundError("%s does not exist or is not a folder: %s", name, dir)
	}
	// A missing folder and a forbidden one get the same answer, so that clients cannot probe the host.
	return nil, notFoundError("%s is not one of the folders of this server (mcp.directories): %s", name, dir)
}

// file checks that the client may use the script at path, and opens it. A relative path is relative to dir.
func (p *python) file(dir, path string) (*hostFile, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	real, err := filepath.EvalSymlinks(path)
	var f *os.File
	if err == nil {
		f, err = p.openFile(real)
	}
	if errors.Is(err, fs.ErrPermission) && p.mayUse(real) {
		return nil, notFoundError("script_path cannot be read: %v", err)
	}
	if err != nil {
		return nil, notFoundError("script_path does not exist or is not a file: %s", path)
	}
	// Only the folder is resolved: __file__ and the neighbouring files are then those that the user sees.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && p.mayUse(parent) {
		return &hostFile{filepath.Join(parent, filepath.Base(path)), f}, nil
	}
	return &hostFile{real, f}, nil
}

// mayUse reports whether the client may use real, a path without links. A client over stdio may use all paths. A client over
// HTTP may use the paths in Config.Directories.
func (p *python) mayUse(real string) bool {
	_, _, ok := p.below(real)
	return ok
}

// below returns the folder below which the client may use everything, and the name of real from there.
func (p *python) below(real string) (root, rel string, ok bool) {
	switch {
	case real == "":
		return "", "", false
	case p.config.Stdio:
		return filepath.Dir(real), filepath.Base(real), true
	}
	return hostpath.Below(real, p.open)
}

// openRoot opens a folder that the client may use. real has no links.
func (p *python) openRoot(real string) (*os.Root, error) {
	if !p.mayUse(real) {
		return nil, fs.ErrNotExist
	}
	return hostpath.OpenRoot(real)
}

// openFile opens a regular file that the client may use. real has no links.
func (p *python) openFile(real string) (*os.File, error) {
	above, name, ok := p.below(real)
	if !ok {
		return nil, fs.ErrNotExist
	}
	root, err := hostpath.OpenRoot(above)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // read only
	return openRegular(root, name)
}

// openRegular opens a regular file below root. It does not wait for the writer of a FIFO.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s: must be a regular file", name), err, f.Close())
	}
	return f, nil
}

// head returns at most maxScript bytes of a script. Its metadata is near the top.
func (f *hostFile) head() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f.opened, 0, maxScript))
}

// all returns a script of at most maxScript bytes.
func (f *hostFile) all() ([]byte, error) {
	code, err := io.ReadAll(io.NewSectionReader(f.opened, 0, maxScript+1))
	switch {
	case err != nil:
		return nil, notFoundError("script_path cannot be read: %v", err)
	case len(code) > maxScript:
		return nil, valueError("script_path must be a file of at most %d bytes (%s has more)", maxScript, f.path)
	}
	return code, nil
}

// has reports whether there is something of that name.
func (d *hostFolder) has(name string) bool {
	_, err := d.root.Lstat(name)
	return err == nil
}

// freeName returns a script name that does not exist in d.
func (d *hostFolder) freeName() string {
	for i := 1; ; i++ {
		if name := fmt.Sprintf("script_content_%d.py", i); !d.has(name) {
			return name
		}
	}
}

// isSent reports whether walk visits the file rel of d.
func (d *hostFolder) isSent(rel string) bool {
	folders := strings.Split(rel, "/")
	if slices.ContainsFunc(folders[:len(folders)-1], func(name string) bool { return slices.Contains(leftOut, name) }) {
		return false
	}
	st, err := d.root.Lstat(filepath.FromSlash(rel))
	return err == nil && st.Mode().IsRegular()
}

// errStopWalk ends a walk of a folder that is too large.
var errStopWalk = errors.New("folder too large")

// walk visits the files and folders of d that are sent to a sandbox.
func (d *hostFolder) walk(visit func(rel string, e fs.DirEntry) error) error {
	return fs.WalkDir(d.root.FS(), ".", func(rel string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || rel == ".":
			return err
		case e.IsDir() && slices.Contains(leftOut, e.Name()):
			return fs.SkipDir
		case !e.IsDir() && !e.Type().IsRegular():
			return nil // a link may lead out of the folder, and special files cannot be sent
		}
		return visit(rel, e)
	})
}

// measure refuses a folder of which more files or bytes would be sent.
func (d *hostFolder) measure(maxFiles int, maxBytes int64) error {
	sum := size{files: maxFiles, bytes: maxBytes}
	err := d.walk(func(rel string, _ fs.DirEntry) error {
		info, err := d.root.Lstat(filepath.FromSlash(rel))
		if err != nil {
			return err
		}
		return sum.add(info)
	})
	switch {
	case errors.Is(err, errStopWalk):
		return valueError("directory must have at most %d files and %d MB to be sent to the sandbox (got %s): name a folder below it, or call run_script_with_dependencies for code that needs no files", maxFiles, maxBytes>>20, d.path)
	case err != nil:
		return valueError("directory %s cannot be read: %v", d.path, err)
	}
	return nil
}

// size is what may still be sent.
type size struct {
	files int
	bytes int64
}

func (s *size) add(info fs.FileInfo) error {
	s.files--
	if info.Mode().IsRegular() {
		s.bytes -= info.Size()
	}
	if s.files < 0 || s.bytes < 0 {
		return errStopWalk
	}
	return nil
}

// source returns d as a tar, which is written while the reader reads. If name is not empty, the tar also has a file of that name with data
// as its content. A nil d adds no files.
func (d *hostFolder) source(name string, data []byte) *executor.Source {
	return &executor.Source{SizeBytes: -1, Replayable: true, Open: func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			t := tar.NewWriter(w)
			var err error
			if d != nil {
				err = d.write(t)
			}
			if err == nil && name != "" {
				err = t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644})
				if err == nil {
					_, err = t.Write(data)
				}
			}
			w.CloseWithError(errors.Join(err, t.Close()))
		}()
		return r, nil
	}}
}

// write writes what is sent of d. The folder may have grown since it was measured, so its size is bounded here, too.
func (d *hostFolder) write(t *tar.Writer) error {
	sum := size{files: maxCopyFiles, bytes: maxCopyBytes}
	return d.walk(func(rel string, e fs.DirEntry) error {
		if e.IsDir() {
			return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o755})
		}
		f, err := openRegular(d.root, filepath.FromSlash(rel))
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		info, err := f.Stat()
		if err == nil {
			err = sum.add(info)
		}
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: rel, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(),
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.CopyN(t, f, info.Size()) // fails if the file has shrunk
		return err
	})
}
