package dirblobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// suffix ends the file name of each blob and begins that of the folder of temporary files. No key contains it.
	suffix  = "%"
	tempDir = suffix + "tmp"

	dirMode = 0o700

	maxSegment = 200
	maxKey     = 1024
)

// Blobs implements executor.Blobs.
type Blobs struct {
	root string
	// sync is (*os.File).Sync, except in tests.
	sync func(*os.File) error
	// buffers has *[copyBuffer]byte that no writer uses.
	buffers sync.Pool
}

var _ executor.Blobs = (*Blobs)(nil)

// Open makes the folder path if it does not exist, removes temporary files that a crash has left, and returns the Blobs in it.
// Several processes may have the same folder open.
func Open(path string) (*Blobs, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, ioError("open blobs", err)
	}
	b := &Blobs{root: root, sync: (*os.File).Sync, buffers: sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
	if err := os.MkdirAll(filepath.Join(root, tempDir), dirMode); err != nil {
		return nil, ioError("open blobs", err)
	}
	leftovers, err := os.ReadDir(filepath.Join(root, tempDir))
	if err != nil {
		return nil, ioError("open blobs", err)
	}
	for _, entry := range leftovers {
		if err := removeAbandoned(filepath.Join(root, tempDir, entry.Name())); err != nil {
			return nil, ioError("remove a leftover temporary file", err)
		}
	}
	return b, nil
}

// Put implements executor.Blobs. It wraps an error of r without changing its code.
func (b *Blobs) Put(ctx context.Context, key string, r io.Reader, max int64, durable bool) (executor.BlobInfo, error) {
	if problem := checkKey(key); problem != "" {
		return executor.BlobInfo{}, executor.FieldErrorf(executor.Invalid, "key", "%s", problem)
	}
	w, err := b.newWriter()
	if err != nil {
		return executor.BlobInfo{}, ioError("store blob "+key, err)
	}
	defer w.discard()
	buffer := b.buffers.Get().(*[copyBuffer]byte)
	defer b.buffers.Put(buffer)
	if err := w.fill(ctx, key, r, max, buffer[:]); err != nil {
		return executor.BlobInfo{}, err
	}
	modTime, err := w.publish(b, b.file(key), durable)
	if err != nil {
		return executor.BlobInfo{}, ioError("store blob "+key, err)
	}
	return executor.BlobInfo{Key: key, SizeBytes: w.size, Digest: w.digest(), ModTime: modTime}, nil
}

// Open implements executor.Blobs.
func (b *Blobs) Open(_ context.Context, key string) (*executor.Source, error) {
	if checkKey(key) != "" {
		return nil, executor.Errorf(executor.NotFound, "blob %q", key)
	}
	path := b.file(key)
	info, err := os.Stat(path)
	if err != nil {
		return nil, openError(key, err)
	}
	return &executor.Source{
		Open: func() (io.ReadCloser, error) {
			f, err := os.Open(path) //nolint:gosec // the key was checked
			if err != nil {
				return nil, openError(key, err)
			}
			return f, nil
		},
		SizeBytes:  info.Size(),
		Replayable: true,
		Path:       path,
	}, nil
}

// Delete implements executor.Blobs. It also removes folders that become empty.
func (b *Blobs) Delete(_ context.Context, key string) error {
	if checkKey(key) != "" {
		return nil
	}
	path := b.file(key)
	if err := os.Remove(path); err != nil && !missing(err) {
		return ioError("delete blob "+key, err)
	}
	for dir := filepath.Dir(path); dir != b.root; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // not empty
			break
		}
	}
	return nil
}

// List implements executor.Blobs. The order is that of the folder walk, which can differ from that of the keys.
func (b *Blobs) List(ctx context.Context, prefix string) iter.Seq2[executor.BlobInfo, error] {
	return func(yield func(executor.BlobInfo, error) bool) {
		start := b.root
		if parent := prefix[:strings.LastIndexByte(prefix, '/')+1]; parent != "" {
			if checkKey(strings.TrimSuffix(parent, "/")) != "" {
				return
			}
			start = filepath.Join(b.root, filepath.FromSlash(parent))
		}
		err := filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case missing(err): // deleted during the walk
				return nil
			case err != nil:
				return err
			case entry.IsDir():
				return nil
			}
			info, ok, err := b.describe(path, entry)
			if err != nil || !ok || !strings.HasPrefix(info.Key, prefix) {
				return err
			}
			if !yield(info, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(executor.BlobInfo{}, ioError("list blobs", err))
		}
	}
}

// describe returns the blob of the file at path; ok is false if the file is not a blob or no longer exists.
func (b *Blobs) describe(path string, entry fs.DirEntry) (_ executor.BlobInfo, ok bool, _ error) {
	relative, err := filepath.Rel(b.root, path)
	if err != nil {
		return executor.BlobInfo{}, false, err
	}
	key, isBlob := strings.CutSuffix(filepath.ToSlash(relative), suffix)
	if !isBlob || checkKey(key) != "" {
		return executor.BlobInfo{}, false, nil
	}
	info, err := entry.Info()
	if missing(err) {
		return executor.BlobInfo{}, false, nil
	}
	if err != nil {
		return executor.BlobInfo{}, false, err
	}
	return executor.BlobInfo{Key: key, SizeBytes: info.Size(), ModTime: info.ModTime()}, true, nil
}

func (b *Blobs) file(key string) string {
	return filepath.Join(b.root, filepath.FromSlash(key)+suffix)
}

// checkKey returns the problem of key, or "" if key is valid.
func checkKey(key string) string {
	if len(key) > maxKey {
		return fmt.Sprintf("must have at most %d bytes (got %d)", maxKey, len(key))
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return fmt.Sprintf("must not have the segment %q", segment)
		case len(segment) > maxSegment:
			return fmt.Sprintf("must have segments of at most %d bytes (got %d)", maxSegment, len(segment))
		case strings.ContainsFunc(segment, notInKeys):
			return fmt.Sprintf("must have only the characters a-z 0-9 _ . - in a segment (got %q)", segment)
		}
	}
	return ""
}

func notInKeys(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-'
}

func openError(key string, err error) error {
	if missing(err) {
		return executor.Errorf(executor.NotFound, "blob %s", key)
	}
	return ioError("open blob "+key, err)
}

// ioError gives err its code: exhausted for a full disk or quota, internal otherwise. An error of a ctx keeps its own code.
func ioError(doing string, err error) error {
	switch {
	case diskFull(err):
		return &executor.Error{Code: executor.Exhausted, Op: doing, Message: "no space left on the disk of the data folder", Err: err}
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", doing, err)
	default:
		return executor.Errorf(executor.Internal, "%s: %w", doing, err)
	}
}
