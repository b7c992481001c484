package workertest

import (
	"archive/tar"
	"io"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Journal is a Sink that keeps the output and the handle of one Execution.
type Journal struct {
	// Started is closed when the program has started.
	Started chan struct{}
	// Wrote gets a value for each Output.
	Wrote chan struct{}

	mu     sync.Mutex
	out    strings.Builder
	handle []byte
}

// NewJournal returns an empty Journal.
func NewJournal() *Journal {
	return &Journal{Started: make(chan struct{}), Wrote: make(chan struct{}, 100)}
}

// Emit implements executor.Sink.
func (j *Journal) Emit(e executor.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch body := e.Body.(type) {
	case executor.Started:
		j.handle = body.Handle
		close(j.Started)
	case executor.Output:
		j.out.Write(body.Data)
		j.Wrote <- struct{}{}
	}
	return nil
}

// Artifact implements executor.Sink.
func (j *Journal) Artifact(*tar.Header, io.Reader) error { return nil }

// Text returns the output.
func (j *Journal) Text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.String()
}

// Handle returns the handle of Started.
func (j *Journal) Handle() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.handle
}
