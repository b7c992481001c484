package uvbackend

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// prepareSession runs the PreCommands of a Session in it, before anybody else can use it. The error is of code invalid if one fails.
func (b *Backend) prepareSession(ctx context.Context, s *session, asked executor.Session) error {
	for n, command := range asked.Spec.PreCommands {
		if strings.TrimSpace(command) == "" {
			continue
		}
		said := &saidSink{last: requirements.Tail{Max: maxSaid}}
		job := executor.Job{
			ID: fmt.Sprintf("%s-pre-%d", asked.ID, n), Owner: asked.Owner, Limits: asked.Limits,
			Spec: executor.Spec{Session: asked.ID, Command: []string{"/bin/sh", "-c", command}},
		}
		result, err := s.slot.conn.Run(ctx, protocol.NewStart(job), runner.RunInput{}, said)
		if err != nil {
			return err
		}
		if result.Status == executor.StatusSucceeded {
			continue
		}
		how := string(result.Status)
		switch {
		case result.Failure != nil:
			how = result.Failure.Message
		case result.ExitCode != nil:
			how = fmt.Sprintf("ended with exit code %d", *result.ExitCode)
		case result.Signal != "":
			how = "was ended by " + result.Signal
		}
		f := backend.AsUser(requirements.CommandFailure(executor.Invalid, requirements.CommandName(n, command), how, &said.last))
		return executor.FieldErrorf(f.Code, f.Field, "%s", strings.TrimPrefix(f.Message, f.Field))
	}
	return nil
}

// maxSaid bounds the output of a command that an error repeats: the last bytes.
const maxSaid = 16 << 10

// saidSink keeps the last output.
type saidSink struct{ last requirements.Tail }

// Emit implements executor.Sink.
func (s *saidSink) Emit(e executor.Event) error {
	if o, ok := e.Body.(executor.Output); ok {
		s.last.Append(o.Data)
	}
	return nil
}

// Artifact implements executor.Sink. A command in a Session has none.
func (s *saidSink) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
