package dirblobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const copyBuffer = 256 << 10

// writer writes one blob to a temporary file.
type writer struct {
	file *os.File
	hash hash.Hash
	size int64
	// published reports whether the file has its final name; discard does nothing then.
	published bool
}

func (b *Blobs) newWriter() (*writer, error) {
	f, err := os.CreateTemp(filepath.Join(b.root, tempDir), "") // 0600
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &writer{file: f, hash: sha256.New()}, nil
}

// fill copies r into the file by way of buffer, until r's end, ctx's end or more than max bytes.
func (w *writer) fill(ctx context.Context, key string, r io.Reader, max int64, buffer []byte) error {
	for {
		if err := ctx.Err(); err != nil {
			return ioError("store blob "+key, err)
		}
		n, readErr := r.Read(buffer)
		if max > 0 && w.size+int64(n) > max {
			return executor.Errorf(executor.Exhausted, "blob %s: must have at most %d bytes", key, max)
		}
		if _, err := w.file.Write(buffer[:n]); err != nil {
			return ioError("store blob "+key, err)
		}
		_, _ = w.hash.Write(buffer[:n]) // a hash never fails
		w.size += int64(n)
		if readErr == io.EOF {
			if err := ctx.Err(); err != nil {
				return ioError("store blob "+key, err)
			}
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("store blob %s: read: %w", key, readErr)
		}
	}
}

// publish renames the file to path and closes it. If durable, the file and every folder up to b's root are on disk afterwards.
func (w *writer) publish(b *Blobs, path string, durable bool) (time.Time, error) {
	info, err := w.file.Stat()
	if err != nil {
		return time.Time{}, err
	}
	if durable {
		if err := b.sync(w.file); err != nil {
			return time.Time{}, err
		}
	}
	if err := rename(w.file.Name(), path); err != nil {
		return time.Time{}, err
	}
	w.published = true
	if durable {
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			if err := b.syncDir(dir); err != nil {
				return time.Time{}, errors.Join(err, w.file.Close())
			}
			if dir == b.root {
				break
			}
		}
	}
	// Close releases the lock. The content is already in place.
	return info.ModTime(), w.file.Close()
}

// rename makes path's folder and moves the file there. A concurrent Delete may remove the folder because it is still empty.
// rename then makes the folder again.
func rename(from, path string) error {
	const attempts = 100
	var err error
	for range attempts {
		err = os.MkdirAll(filepath.Dir(path), dirMode)
		if err == nil {
			err = os.Rename(from, path)
		}
		if !missing(err) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return err
}

func (w *writer) discard() {
	if w.published {
		return
	}
	// These errors are ignored: the next Open of the folder removes a file that stays.
	_ = os.Remove(w.file.Name())
	_ = w.file.Close()
}

func (w *writer) digest() string { return "sha256:" + hex.EncodeToString(w.hash.Sum(nil)) }

func (b *Blobs) syncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // a folder of this package
	if missing(err) {         // a Delete has removed the blob and its folder
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(b.sync(dir), dir.Close())
}

// lock marks a temporary file as in use until it is closed.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // a descriptor is small
}

// removeAbandoned removes a temporary file unless a process still writes it.
func removeAbandoned(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // a name that ReadDir gave
	if err == nil {
		defer func() { _ = f.Close() }()
		if lock(f) != nil {
			return nil
		}
		err = os.Remove(path)
	}
	if missing(err) {
		return nil
	}
	return err
}

// missing reports whether err means that there is no such file, or that a parent of its path is a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
