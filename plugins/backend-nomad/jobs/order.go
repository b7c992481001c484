package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// maxInline is how large all files of a task's input may be to be in the job itself.
const maxInline = 32 << 10

// order returns the job to make, and keeps its input. A standard input that is large, or not whole yet, is passed on later: feed has the
// Source then, and withdraw must be called. Codes: invalid, denied (refused), those of the Sources.
func (b *Backend) order(ctx context.Context, j executor.Job, image string, p preparation) (o order, f *feed, err error) {
	o = order{
		id: j.ID, owner: j.Owner, instance: b.instance, backend: b.name, attempt: j.Attempt, image: image, network: j.Spec.Network == executor.NetworkOn, limits: j.Limits,
		inMemory: b.config.Work == WorkInMemory,
		runner:   runnerSource{url: b.transfer.runnerURL(), sha256: b.transfer.sum, command: b.program.command},
	}
	s := job.Start{Start: protocol.NewStart(j), Config: job.DefaultConfig(), Protect: protected}
	s.Start.Network = true // the container decides about the network
	s.PythonVersion = j.Spec.PythonVersion
	if p.needed() {
		s.Prepared = preparedFolder
	}
	start, err := json.Marshal(s)
	if err != nil {
		return order{}, nil, err
	}
	workspace, stdin := runner.NewSourceReader(j.Workspace), runner.NewSourceReader(j.Stdin)
	defer context.AfterFunc(ctx, func() { _, _ = workspace.Close(), stdin.Close() })()
	defer workspace.Close() //nolint:errcheck // read only
	defer func() {
		if f == nil {
			_ = stdin.Close() // read only
		}
	}()
	list := []inputFile{{job.StartFile, bytes.NewReader(start)}}
	var before []inputFile
	if p.needed() {
		if before, err = b.prepareFiles(j, p); err != nil {
			return order{}, nil, err
		}
	}
	switch {
	case j.Workspace == nil:
	case len(p.commands) > 0: // they run in its files
		before = append(before, inputFile{job.WorkspaceFile, workspace})
	default:
		list = append(list, inputFile{job.WorkspaceFile, workspace})
	}
	feeds := j.Stdin != nil && b.canFeed()
	if j.Stdin != nil && !feeds {
		list = append(list, inputFile{job.StdinFile, stdin})
	}
	if p.needed() {
		input, err := b.bring(j.ID, taskPrepare, before)
		if err != nil {
			return order{}, nil, err
		}
		o.prepare, o.prepareLimits = &input, b.prepareLimits(j.Limits)
	}
	if o.program, err = b.bring(j.ID, taskProgram, list); err != nil || !feeds {
		return o, nil, err
	}
	whole, f, err := openFeed(stdin, maxInline-o.program.size(), b.feedPatience)
	if err == nil && f != nil {
		o.feed, err = b.feed(j.ID, f)
	}
	if len(whole) > 0 { // a template cannot be empty, and neither file nor task is an empty input
		o.program.inline[job.StdinFile] = whole
	}
	return o, f, err
}

// bring returns the input of a task: in the job if it is small, else kept for the transfer. The files are read in their order.
func (b *Backend) bring(id, part string, list []inputFile) (files, error) {
	inline, total := map[string][]byte{}, 0
	for n, f := range list {
		var head bytes.Buffer
		read, err := io.Copy(&head, io.LimitReader(f.content, int64(maxInline-total+1)))
		if err != nil {
			return files{}, inputError(err)
		}
		total += int(read)
		inline[f.name] = head.Bytes()
		if total <= maxInline && (read > 0 || f.name == job.StdinFile) {
			continue
		}
		// Too much, or an empty file, which a template cannot be.
		for m := range list[:n] {
			list[m].content = bytes.NewReader(inline[list[m].name])
		}
		list[n].content = io.MultiReader(&head, f.content)
		url, err := b.transfer.put(id, part, time.Now().Add(b.inputLifetime()), list)
		if err != nil {
			return files{}, inputError(err)
		}
		return files{inline: map[string][]byte{}, url: url}, nil
	}
	if len(inline[job.StdinFile]) == 0 {
		delete(inline, job.StdinFile)
	}
	return files{inline: inline}, nil
}

// inputError returns the error of an input that could not be kept: that of the Source as it is.
func inputError(err error) error {
	if e, ok := errors.AsType[*executor.Error](err); ok {
		return e
	}
	return executor.Errorf(executor.Unavailable, "read the input: %w", err)
}

// inputLifetime is how long an input can be fetched: as long as a job may wait for a place, with time to pull an image.
func (b *Backend) inputLifetime() time.Duration { return b.config.queueTimeout() + time.Hour }
