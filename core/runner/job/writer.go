package job

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The times and sizes of output that waits for more. See Writer.
const (
	holdTime  = 10 * time.Millisecond
	holdBytes = 64 << 10
)

// Writer writes the records of one Execution and its artifacts. It is the executor.Sink of the runner. Its methods are safe for
// concurrent use.
//
// Output waits up to 10 ms for more, unless none was written for as long. Then a program that writes single bytes, in turn to
// both streams, makes some 200 records per second and not millions.
type Writer struct {
	folder string

	mu      sync.Mutex
	events  *os.File
	size    int64
	err     error // of events; nothing but a last record is written after it
	whole   bool  // after err: the file ends with a whole record
	ended   bool
	pending [2]executor.Output
	order   [2]int // the streams with pending output, in the order of their first byte
	waiting int    // how many of order count
	written time.Time
	timer   *time.Timer

	artifacts *artifactsFile // nil before the first
}

// NewWriter makes the output folder, which belongs to this process alone, and begins the file events in it. A folder that has
// that file is refused, so that an Execution runs at most once there. Codes: conflict (the file exists), internal.
func NewWriter(folder, executionID string) (*Writer, error) {
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.Chmod(folder, 0o700) //nolint:gosec // a folder
	}
	if err == nil {
		err = os.Chown(folder, os.Geteuid(), os.Getegid())
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "output folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, EventsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, executor.Errorf(executor.Conflict, "output folder: %s exists, so the execution has begun before", EventsFile)
	}
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "output folder: %w", err)
	}
	w := &Writer{folder: folder, events: f}
	if err := w.write(Record{Begin: &Begin{Version: Version, ExecutionID: executionID}}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// Emit implements executor.Sink.
func (w *Writer) Emit(e executor.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, ok := e.Body.(executor.Output); ok {
		return w.outputLocked(o)
	}
	return w.writeLocked(Record{Event: &e})
}

// outputLocked takes a piece of output, and writes what waits if it is much or has waited long enough.
func (w *Writer) outputLocked(o executor.Output) error {
	if w.err != nil {
		return w.err
	}
	n := protocol.StreamIndex(o.Stream)
	p := &w.pending[n]
	if len(p.Data)+len(o.Data) > executor.MaxOutputData {
		if err := w.flushLocked(); err != nil {
			return err
		}
	}
	if len(p.Data) == 0 {
		w.order[w.waiting] = n
		w.waiting++
		p.Stream, p.Offset = o.Stream, o.Offset
	}
	p.Data = append(p.Data, o.Data...)
	wait := holdTime - time.Since(w.written)
	if wait <= 0 || len(p.Data) >= holdBytes {
		return w.flushLocked()
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, w.flush)
	} else {
		w.timer.Reset(wait)
	}
	return nil
}

// flush writes the output that waits. An error is returned by the next call of a method.
func (w *Writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.flushLocked() // w.err keeps it
}

func (w *Writer) flushLocked() error {
	if w.timer != nil {
		w.timer.Stop()
	}
	for _, n := range w.order[:w.waiting] {
		o := w.pending[n]
		if err := w.appendLocked(Record{Event: &executor.Event{Body: o}}); err != nil {
			return err
		}
		w.pending[n].Data = o.Data[:0]
	}
	if w.waiting > 0 {
		w.written = time.Now()
	}
	w.waiting = 0
	return nil
}

// Artifact implements executor.Sink.
func (w *Writer) Artifact(h *tar.Header, r io.Reader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.artifacts == nil {
		f, err := newArtifactsFile(filepath.Join(w.folder, ArtifactsFile))
		if err != nil {
			return err
		}
		w.artifacts = f
	}
	at, err := w.artifacts.add(h, r)
	if err != nil {
		return err
	}
	return w.writeLocked(Record{Artifact: &Artifact{
		Header: protocol.ArtifactHeader{Path: h.Name, Size: h.Size, Mode: h.Mode, ModTime: h.ModTime}, Offset: at,
	}})
}

// Result writes the Result as the last record. A Result that is too long loses its lists, and its Failure says so.
func (w *Writer) Result(res executor.Result) error {
	raw, err := protocol.EncodeResult(res)
	var short executor.Result
	if err == nil {
		err = json.Unmarshal(raw, &short)
	}
	if err != nil {
		return executor.Errorf(executor.Internal, "result: %w", err)
	}
	return w.end(Record{Result: &short})
}

// Prepared writes p as the last record.
func (w *Writer) Prepared(p Prepared) error { return w.end(Record{Prepared: &p}) }

// Fail writes err, which is the runner's own or a refusal, as the last record.
func (w *Writer) Fail(err error) error {
	rec := Error{Code: executor.CodeOf(err), Message: err.Error()}
	if e, ok := errors.AsType[*executor.Error](err); ok {
		rec.Fields = e.Fields
	}
	return w.end(Record{Error: &rec})
}

func (w *Writer) end(last Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.whole { // else the file ends within a record
		w.err, w.waiting = nil, 0
	}
	var err error
	if w.artifacts != nil {
		err = w.artifacts.end()
	}
	return errors.Join(err, w.writeLocked(last))
}

// Close closes the files. It does not write a last record.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flushLocked()
	if w.artifacts != nil {
		err = errors.Join(err, w.artifacts.file.Close())
	}
	return errors.Join(err, w.events.Close())
}

func (w *Writer) write(r Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeLocked(r)
}

// writeLocked writes the output that waits, then r.
func (w *Writer) writeLocked(r Record) error {
	if err := w.flushLocked(); err != nil {
		return err
	}
	return w.appendLocked(r)
}

// appendLocked appends r to the file: the whole of it, or nothing.
func (w *Writer) appendLocked(r Record) error {
	if w.err != nil {
		return w.err
	}
	if w.ended {
		return executor.Errorf(executor.Internal, "a record after the last one")
	}
	line, err := json.Marshal(r)
	if err == nil && len(line) > MaxRecord {
		err = fmt.Errorf("must be at most %d bytes (got %d)", MaxRecord, len(line))
	}
	if err != nil {
		return executor.Errorf(executor.Internal, "record: %w", err)
	}
	n, err := w.events.Write(append(line, '\n'))
	if err != nil {
		failed := w.events.Truncate(w.size) // n bytes may be there: the disk is full
		w.whole = failed == nil
		w.err = executor.Errorf(executor.Internal, "write the events: %w", errors.Join(err, failed))
		return w.err
	}
	w.size += int64(n)
	w.ended = r.Last()
	return nil
}

// artifactsFile is the file artifacts: a tar whose places are known.
type artifactsFile struct {
	file *os.File
	tar  *tar.Writer
	size int64
}

func newArtifactsFile(path string) (*artifactsFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "artifacts: %w", err)
	}
	a := &artifactsFile{file: f}
	a.tar = tar.NewWriter(a)
	return a, nil
}

// Write implements io.Writer.
func (a *artifactsFile) Write(p []byte) (int, error) {
	n, err := a.file.Write(p)
	a.size += int64(n)
	return n, err
}

// add appends a file and returns where its content begins.
func (a *artifactsFile) add(h *tar.Header, r io.Reader) (int64, error) {
	err := a.tar.WriteHeader(h)
	at := a.size
	if err == nil {
		_, err = io.Copy(a.tar, r)
	}
	if err == nil {
		err = a.tar.Flush()
	}
	if err != nil {
		return 0, executor.Errorf(executor.Internal, "artifacts: %w", err)
	}
	return at, nil
}

// end writes the end of the tar.
func (a *artifactsFile) end() error {
	if err := a.tar.Close(); err != nil {
		return executor.Errorf(executor.Internal, "artifacts: %w", err)
	}
	return nil
}
