package dockerbackend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// packagesFolder takes what is added to a Session: it lies in memory, as its work folder does, and outside of it.
const packagesFolder = "/.packages"

// unpackTime bounds the unpacking of what is added.
const unpackTime = 5 * time.Minute

// unpackProgram unpacks what it reads into the folder that it is told.
const unpackProgram = `import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as t:
    for m in t:
        t.extract(m, sys.argv[1])`

// Variables implements executor.SessionTools.
func (b *Backend) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	list, err := s.conn().Variables(ctx)
	return list, b.said(s, err)
}

// AddRequirements implements executor.SessionTools. A container's image cannot be changed: an image with all that the
// Session has and what is new is prepared, and its packages are copied into the container, in front of the others.
func (b *Backend) AddRequirements(ctx context.Context, id, text string) ([]string, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.language != executor.LanguagePython {
		return nil, executor.FieldErrorf(executor.Unimplemented, "requirements_txt", "a session in %s has no path to add to: open one with them", s.language)
	}
	s.mu.Lock()
	all := strings.TrimSpace(s.requirements + "\n" + text)
	packages, n := s.packages, s.added
	s.mu.Unlock()
	if strings.TrimSpace(text) == "" {
		return packages, nil
	}
	spec := s.spec
	spec.Requirements = all
	image, i, failure, err := b.image(ctx, spec, &emitter{sink: nowhere{}, stop: func(error) {}})
	if err == nil && failure != nil {
		err = failureError(failure)
	}
	if err != nil {
		return nil, err
	}
	folder := path.Join(packagesFolder, fmt.Sprint(n))
	if err := b.carry(ctx, s, image.ID, folder); err != nil {
		return nil, err
	}
	site := path.Join(folder, "lib", "python"+i.minor(), "site-packages")
	if err := b.said(s, s.conn().AddPath(ctx, site)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requirements, s.packages, s.added = all, image.Requirements, n+1
	return image.Requirements, nil
}

// carry copies the packages of a prepared image into a folder of a Session's container.
func (b *Backend) carry(ctx context.Context, s *session, image, folder string) error {
	creating, cancel := cleanUp(ctx) // not cut off: see factory.try
	id, err := b.daemon.create(creating, fillSpec(b.place, image, "", newName(kindFill), time.Now()))
	cancel()
	if err != nil {
		return err
	}
	defer b.cleaner.remove(id)
	tar, err := b.daemon.copyFrom(ctx, id, path.Join(preparedEnv, "lib"))
	if err != nil {
		return err
	}
	defer tar.Close() //nolint:errcheck // read only
	var said answer
	result, err := s.conn().Run(ctx, runner.Start{
		ExecutionID: "packages-" + random(), Session: true, Command: []string{s.python, "-I", "-c", unpackProgram, folder},
		Limits: executor.Limits{Timeout: unpackTime, OutputBytes: 64 << 10, KillGrace: time.Second},
	}, runner.RunInput{Stdin: tar}, &said)
	if err != nil {
		return b.said(s, err)
	}
	if result.Status != executor.StatusSucceeded {
		return executor.FieldErrorf(executor.Exhausted, "requirements_txt", "the packages do not fit into the session: %s", bytes.TrimSpace([]byte(said.errors.String())))
	}
	return nil
}

// ListFiles implements executor.SessionFiles.
func (b *Backend) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	list, err := s.conn().ListFiles(ctx, path, recursive)
	return list, b.said(s, err)
}

// ReadFile implements executor.SessionFiles.
func (b *Backend) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return executor.File{}, nil, err
	}
	f, r, err := s.conn().ReadFile(ctx, path)
	return f, r, b.said(s, err)
}

// WriteFile implements executor.SessionFiles.
func (b *Backend) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return executor.File{}, err
	}
	f, err := s.conn().WriteFile(ctx, path, size, r)
	return f, b.said(s, err)
}

// RemoveFile implements executor.SessionFiles.
func (b *Backend) RemoveFile(ctx context.Context, id, path string) error {
	s, err := b.session(ctx, id)
	if err != nil {
		return err
	}
	return b.said(s, s.conn().RemoveFile(ctx, path))
}
