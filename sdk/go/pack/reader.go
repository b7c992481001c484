package pack

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"sync"
)

// Open returns a new reader of the tar, from its beginning. Readers are independent of each other.
func (a *Archive) Open() *Reader { return &Reader{archive: a} }

// Reader reads the tar of an Archive. It opens one file at a time. It is an io.Seeker, so the SDK can send the tar again, and a
// tar.Reader skips content without reading it. Reader is safe for concurrent use.
type Reader struct {
	archive *Archive
	mu      sync.Mutex
	at      int64
	closed  bool
	// current has the bytes from at to the end of an entry; nil: the next Read opens it. file is the open file of current; nil: none.
	current io.Reader
	file    io.Closer
}

var _ io.ReadSeekCloser = (*Reader)(nil)

var errClosed = errors.New("the tar is closed")

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case r.closed:
			return 0, errClosed
		case r.at >= r.archive.size:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		if r.current == nil {
			if err := r.openLocked(); err != nil {
				return 0, err
			}
		}
		n, err := r.current.Read(p)
		r.at += int64(n)
		if errors.Is(err, io.EOF) {
			err = r.leaveLocked()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// openLocked sets current to the rest of the entry at r.at.
func (r *Reader) openLocked() error {
	entries := r.archive.entries
	i := sort.Search(len(entries), func(i int) bool { return entries[i].start > r.at }) - 1
	if i < 0 || r.at >= r.archive.size-trailer {
		r.current = bytes.NewReader(make([]byte, r.archive.size-r.at))
		return nil
	}
	e := &entries[i]
	skip := r.at - e.start
	if skip >= e.head {
		var err error
		r.current, r.file, err = e.content(skip - e.head)
		return err
	}
	head, err := headerBytes(e.header)
	if err != nil {
		return err
	}
	content, file, err := e.content(0)
	if err != nil {
		return err
	}
	r.current, r.file = io.MultiReader(bytes.NewReader(head[skip:]), content), file
	return nil
}

// leaveLocked closes the current entry.
func (r *Reader) leaveLocked() error {
	file := r.file
	r.current, r.file = nil, nil
	if file == nil {
		return nil
	}
	return file.Close()
}

// Seek implements io.Seeker.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.archive.size
	}
	if offset < 0 {
		return 0, errors.New("the offset must not be negative")
	}
	if offset == r.at {
		return offset, nil
	}
	r.at = offset
	return offset, r.leaveLocked()
}

// Close ends the reader. Idempotent.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.leaveLocked()
}
