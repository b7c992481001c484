package engine

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// maxArtifacts bounds the files of one Execution.
const maxArtifacts = 100_000

// artifacts writes the collected files of one Execution as a tar into one blob. The blob exists once seal has returned.
type artifacts struct {
	engine  *Engine
	id      string
	limit   int64  // of all files together
	bound   string // the name of limit
	bytes   int64
	durable bool
	ctx     context.Context

	list  []executor.Artifact
	names map[string]bool
	// nameBytes is the length of the names in list.
	nameBytes int
	tar       *tar.Writer
	put       <-chan calls.Answer[executor.BlobInfo]

	mu     sync.Mutex // guards what abort needs
	pipe   *io.PipeWriter
	closed <-chan struct{}
}

// artifactBytes returns the budget of the artifacts of an Execution where it is less than the limit of the disk, else 0.
func (e *Engine) artifactBytes(limits executor.Limits) int64 {
	if most := e.now().engine.MaxArtifactBytes; most < limits.DiskBytes {
		return most
	}
	return 0
}

// badArtifact is the error for an artifact with which a backend breaks the contract.
type badArtifact struct{ error }

func (a *artifacts) add(h *tar.Header, r io.Reader) error {
	switch {
	case h == nil || r == nil:
		return badArtifact{errors.New("an artifact without header or content")}
	case !fs.ValidPath(h.Name) || h.Name == ".":
		return badArtifact{fmt.Errorf("an artifact of the name %q", clip(h.Name, 100))}
	case h.Size < 0:
		return badArtifact{fmt.Errorf("an artifact of %d bytes", h.Size)}
	case len(a.list) >= maxArtifacts:
		return executor.FieldErrorf(executor.Exhausted, "outputs", "must be at most %d files", maxArtifacts)
	case a.nameBytes+len(h.Name) > executor.MaxArtifactNames:
		return executor.FieldErrorf(executor.Exhausted, "outputs", "must have names of at most %d bytes together", executor.MaxArtifactNames)
	case h.Size > a.limit-a.bytes: // a file with holes counts as what it takes without them
		return a.tooLarge()
	case a.names[h.Name]:
		return badArtifact{fmt.Errorf("the artifact %q twice", clip(h.Name, 100))}
	}
	a.open()
	// The header comes from the sandbox: only what a reader of the archive needs is taken over.
	err := a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: h.Name, Size: h.Size, Mode: h.Mode & 0o777, ModTime: h.ModTime, Format: tar.FormatPAX,
	})
	if err != nil {
		return a.explain(err)
	}
	n, err := io.Copy(a.tar, io.LimitReader(r, h.Size))
	if err != nil {
		return a.explain(err)
	}
	if n < h.Size {
		return badArtifact{fmt.Errorf("the artifact %q is cut off", clip(h.Name, 100))}
	}
	a.names[h.Name] = true
	a.bytes += h.Size
	a.nameBytes += len(h.Name)
	a.list = append(a.list, executor.Artifact{Path: h.Name, SizeBytes: h.Size})
	return nil
}

// open starts the blob at the first file.
func (a *artifacts) open() {
	if a.tar != nil {
		return
	}
	r, w := io.Pipe()
	a.tar, a.names = tar.NewWriter(w), map[string]bool{}
	put, closed := calls.Go(func() (executor.BlobInfo, error) {
		// Room for the headers, besides the files.
		info, err := a.engine.blobs.Put(a.ctx, a.id+blobArtifacts, r, a.limit+a.limit/8+(16<<20), a.durable)
		_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // always nil
		return info, err
	})
	a.put = put
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pipe, a.closed = w, closed
}

// diskFull reports whether err is of a full disk of the server. A limit that an Execution has reached is exhausted, too.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// explain returns the reason why the blob takes no more bytes.
func (a *artifacts) explain(err error) error {
	if executor.CodeOf(err) == executor.Exhausted && !diskFull(err) {
		return a.tooLarge()
	}
	return a.engine.internal("keep artifacts", err)
}

func (a *artifacts) tooLarge() error {
	return executor.FieldErrorf(executor.Exhausted, "outputs", "must be at most %d bytes together (%s)", a.limit, a.bound)
}

// seal ends the blob, and returns its key and its files. Without files there is no key.
func (a *artifacts) seal() (key string, list []executor.Artifact, err error) {
	if a.tar == nil {
		return "", nil, nil
	}
	err = a.tar.Close()
	_ = a.pipe.CloseWithError(err) // always nil; nil means EOF
	got := <-a.put
	if err := errors.Join(got.Err, err); err != nil {
		return "", nil, a.explain(err)
	}
	return a.id + blobArtifacts, a.list, nil
}

// wait returns when the blob, which was given up, is no longer written, or after limit. Then another blob can take its place.
func (a *artifacts) wait(limit time.Duration) {
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	if closed == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// abort gives the blob up. It may be called while add writes to it.
func (a *artifacts) abort(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pipe != nil {
		_ = a.pipe.CloseWithError(cause) // always nil
		a.engine.abandoned.Add(a.closed, "the artifacts of "+a.id)
	}
}
