// Command project runs a folder of Python on a server, shows its output as it comes, and saves what it made.
package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: project FOLDER")
		os.Exit(125)
	}
	// Ctrl-C ends ctx, and RunStream then kills the execution.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) error {
	client, err := pyexec.NewClient(
		cmp.Or(os.Getenv("PYEXEC_SERVER"), "http://127.0.0.1:8080"),
		pyexec.WithToken(os.Getenv("PYEXEC_TOKEN")))
	if err != nil {
		return err
	}
	spec := pyexec.Spec{Outputs: []string{"**/*.txt", "**/*.csv"}}
	// The server does not look into a tar for requirements unless it is told to; a client that knows them says them.
	if raw, err := os.ReadFile(filepath.Join(folder, "requirements.txt")); err == nil { //nolint:gosec // the user's folder
		spec.RequirementsTxt = string(raw)
	}
	archive := pack(os.DirFS(folder))
	e, err := client.RunStream(ctx, spec, pyexec.Input{Tar: archive}, show)
	if err := errors.Join(err, archive.Close()); err != nil {
		return err
	}
	for _, a := range e.Artifacts {
		if err := save(ctx, client, e.ExecutionID, a.Path); err != nil {
			return fmt.Errorf("save %s: %w", a.Path, err)
		}
	}
	if e.Status != pyexec.StatusSucceeded {
		return fmt.Errorf("the execution ended as %s", e.Status)
	}
	return nil
}

// pack returns a tar that is made while it is sent: nothing is held in memory or on a disk.
func pack(folder fs.FS) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		w.CloseWithError(errors.Join(archive.AddFS(folder), archive.Close()))
	}()
	return r
}

func show(e pyexec.Event) error {
	switch b := e.Body.(type) {
	case pyexec.Progress:
		fmt.Fprintln(os.Stderr, b.Phase, b.Message)
	case pyexec.Output:
		to := os.Stdout
		if b.Stream == "stderr" {
			to = os.Stderr
		}
		_, err := to.Write(b.Data)
		return err
	}
	return nil
}

// save writes an artifact below the folder out. os.Root keeps it there, whatever its path says.
func save(ctx context.Context, client *pyexec.Client, id, path string) (err error) {
	content, err := client.Artifact(ctx, id, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if err := os.MkdirAll("out", 0o750); err != nil {
		return err
	}
	root, err := os.OpenRoot("out")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := filepath.FromSlash(path)
	if err := root.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
