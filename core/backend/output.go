package backend

import (
	"archive/tar"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// Output is a Sink that writes the output of a program to Stdout and Stderr. It drops all other Events, and Artifacts.
type Output struct{ Stdout, Stderr io.Writer }

// Emit implements executor.Sink.
func (o Output) Emit(e executor.Event) error {
	out, ok := e.Body.(executor.Output)
	if !ok {
		return nil
	}
	to := o.Stdout
	if out.Stream == executor.Stderr {
		to = o.Stderr
	}
	_, err := to.Write(out.Data)
	return err
}

// Artifact implements executor.Sink.
func (Output) Artifact(*tar.Header, io.Reader) error { return nil }
