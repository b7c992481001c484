package fake

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// tree is a work folder in memory. It holds regular files, symbolic links and FIFOs by clean relative path. put, get, remove,
// names and regular are safe for concurrent use, by SessionFiles and the program.
type tree struct {
	mu    sync.Mutex
	files map[string]*file
	order []string // the paths in the order of creation
	bytes int64
}

// file is a file in a tree. Once it is there, only its field changed may change.
type file struct {
	data    []byte
	mode    int64
	link    string // symbolic link's target; data is then empty
	pipe    bool   // a FIFO
	folder  bool   // an empty folder
	changed bool   // by the program
	time    time.Time
	// resized reports whether the file gets the size becomes while it is collected.
	resized bool
	becomes int64
}

func newTree() *tree { return &tree{files: map[string]*file{}} }

// header returns the header of the file as an Artifact.
func (f *file) header(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(f.data)), Mode: f.mode}
}

// put creates or replaces a file. A limit ≥ 0 bounds the bytes of the whole tree.
func (t *tree) put(name string, f *file, limit int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.time = time.Now()
	old := t.files[name]
	grown := t.bytes + int64(len(f.data))
	if old != nil {
		grown -= int64(len(old.data))
	}
	if limit >= 0 && grown > limit {
		return fmt.Errorf("[Errno 28] No space left on device: %q", name)
	}
	if old == nil {
		t.order = append(t.order, name)
	}
	t.files[name] = f
	t.bytes = grown
	return nil
}

// get follows links and returns nil when there is no such file.
func (t *tree) get(name string) *file {
	t.mu.Lock()
	defer t.mu.Unlock()
	name = path.Clean(name)
	for range 40 {
		f := t.files[name]
		if f == nil || f.link == "" {
			return f
		}
		name = path.Join(path.Dir(name), f.link)
	}
	return nil
}

func (t *tree) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[name]; f != nil {
		t.bytes -= int64(len(f.data))
		delete(t.files, name)
		t.order = slices.DeleteFunc(t.order, func(other string) bool { return other == name })
	}
}

// names returns the paths of all files, sorted.
func (t *tree) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.files))
}

// settle marks all files as not changed by the program.
func (t *tree) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		f.changed = false
	}
}

// regular returns the regular files for which want is true, in the order of creation.
func (t *tree) regular(want func(path string, f *file) bool) (paths []string, files []*file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, path := range t.order {
		if f := t.files[path]; f != nil && f.link == "" && !f.pipe && !f.folder && want(path, f) {
			paths, files = append(paths, path), append(files, f)
		}
	}
	return paths, files
}

// unpack reads a tar into t. An error is about the user's tar and names the entry.
func (t *tree) unpack(r io.Reader, limit int64) error {
	reader := tar.NewReader(r)
	for {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			// The sender may still write the padding at the end of the archive.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("workspace is not an uncompressed tar: %w", err)
		}
		if err := t.entry(h, reader, limit); err != nil {
			return fmt.Errorf("workspace entry %q: %w", h.Name, err)
		}
	}
}

func (t *tree) entry(h *tar.Header, r io.Reader, limit int64) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := inside(h.Name, ".")
	if err != nil {
		return err
	}
	if err := t.throughLink(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return nil
	case tar.TypeSymlink:
		if _, err := inside(h.Linkname, path.Dir(name)); err != nil {
			return fmt.Errorf("link to %q: %w", h.Linkname, err)
		}
		return t.put(name, &file{link: h.Linkname, mode: h.Mode}, limit)
	case tar.TypeLink:
		target, err := inside(h.Linkname, ".")
		if err != nil {
			return fmt.Errorf("hard link to %q: %w", h.Linkname, err)
		}
		f := t.files[target]
		if f == nil || f.link != "" {
			return fmt.Errorf("hard link to %q, which is no file of the archive", h.Linkname)
		}
		return t.put(name, &file{data: f.data, mode: f.mode}, limit)
	case tar.TypeReg, tar.TypeGNUSparse:
		if limit >= 0 && h.Size > limit {
			return fmt.Errorf("%d bytes are more than the disk limit", h.Size)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return t.put(name, &file{data: data, mode: h.Mode & 0o777}, limit)
	default:
		return fmt.Errorf("type %q is not allowed (only files, folders and links inside)", h.Typeflag)
	}
}

// throughLink refuses a name if one of its folders is a link or a file.
func (t *tree) throughLink(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if f := t.files[dir]; f != nil {
			return fmt.Errorf("%q is not a folder", dir)
		}
	}
	return nil
}

// maxName is the maximum length of a file's name in bytes, as on Linux.
const maxName = 255

var (
	errOutside = errors.New("lies outside of the workspace")
	errTooLong = errors.New("has a name that is too long for a file")
)

// inside returns the clean path of name, which is relative to the folder dir. It refuses a path out of the root.
func inside(name, dir string) (string, error) {
	if name == "" || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", errOutside
	}
	clean := path.Join(dir, name)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errOutside
	}
	// A name that leaves the root and comes back is refused too, because a folder on the way may be a link.
	depth := 0
	if dir != "." {
		depth = strings.Count(dir, "/") + 1
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return "", errTooLong
		}
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return "", errOutside
			}
		default:
			depth++
		}
	}
	return clean, nil
}

// entrypoint returns the program: main.py, else __main__.py, else the first .py file. chosen reports whether that file was
// chosen among several.
func (t *tree) entrypoint() (name string, chosen bool) {
	for _, name := range []string{"main.py", "__main__.py"} {
		if f := t.files[name]; f != nil {
			return name, false
		}
	}
	for _, other := range t.order {
		if f := t.files[other]; f == nil || f.link != "" || !strings.HasSuffix(other, ".py") || other == name {
			continue
		}
		if name != "" {
			return name, true
		}
		name = other
	}
	return name, false
}

// match reports whether the slash-separated glob, in which ** stands for any number of folders, matches name. A name of a folder matches
// its content.
func match(glob, name string) bool {
	parts := strings.Split(path.Clean(glob), "/")
	if !strings.ContainsAny(parts[len(parts)-1], "*?[") {
		parts = append(parts, "**")
	}
	return matchParts(parts, strings.Split(name, "/"))
}

func matchParts(glob, name []string) bool {
	if len(glob) == 0 {
		return len(name) == 0
	}
	if glob[0] == "**" {
		for i := range len(name) + 1 {
			if matchParts(glob[1:], name[i:]) {
				return true
			}
		}
		return false
	}
	if len(name) == 0 {
		return false
	}
	ok, err := path.Match(glob[0], name[0])
	return err == nil && ok && matchParts(glob[1:], name[1:])
}

// failure returns a Failure about the user's input.
func failure(phase executor.Phase, code executor.Code, format string, args ...any) *executor.Failure {
	return &executor.Failure{Code: code, Phase: phase, Message: fmt.Sprintf(format, args...)}
}
