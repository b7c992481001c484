package dockerbackend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// packagesFolder holds the packages that are added to a Session. Like the work folder it is in memory, but it is not part of
// it.
const packagesFolder = "/.packages"

// unpackTime bounds the unpacking of added packages.
const unpackTime = 5 * time.Minute

// unpackProgram unpacks the tar on its standard input into the folder of its first argument.
const unpackProgram = `import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as t:
    for m in t:
        t.extract(m, sys.argv[1])`

// AddRequirements implements executor.SessionTools. The image of a running container cannot change. So AddRequirements prepares
// an image with all requirements of the Session, old and new, and copies its packages into the container. They come before the
// others on the path.
func (b *Backend) AddRequirements(ctx context.Context, id, text string) ([]string, error) {
	s, err := b.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.language != executor.LanguagePython {
		return nil, executor.FieldErrorf(executor.Unimplemented, "requirements_txt", "cannot be added to a session in %s: open a session with them", s.language)
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
	image, i, failure, err := b.image(ctx, spec, backend.NoProgress)
	if err = backend.FailureError(failure, err); err != nil {
		return nil, err
	}
	folder := path.Join(packagesFolder, fmt.Sprint(n))
	if err := b.carry(ctx, s, image.ID, folder); err != nil {
		return nil, err
	}
	site := path.Join(folder, "lib", "python"+i.Minor(), "site-packages")
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
	id, err := b.daemon.create(ctx, fillSpec(b.place, image, "", newName(kindFill), time.Now()))
	if err != nil {
		return err
	}
	defer b.cleaner.remove(id)
	tar, err := b.daemon.copyFrom(ctx, id, path.Join(preparedEnv, "lib"))
	if err != nil {
		return err
	}
	defer tar.Close() //nolint:errcheck // read only
	var said bytes.Buffer
	result, err := s.conn().Run(ctx, runner.Start{
		ExecutionID: "packages-" + random(), Session: true, Command: []string{s.python, "-I", "-c", unpackProgram, folder},
		Limits: executor.Limits{Timeout: unpackTime, OutputBytes: 64 << 10, KillGrace: time.Second},
	}, runner.RunInput{Stdin: tar}, backend.Output{Stdout: io.Discard, Stderr: &said})
	if err != nil {
		return b.said(s, err)
	}
	if result.Status != executor.StatusSucceeded {
		return executor.FieldErrorf(executor.Exhausted, "requirements_txt", "the packages do not fit into the session: %s", bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
