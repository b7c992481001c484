package fake

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// collect passes the Artifacts to sink and adds them to result.
func (r *run) collect(sink executor.Sink, result *executor.Result) error {
	if r.tree == nil || r.started.IsZero() {
		return nil
	}
	begin := time.Now()
	var changed []string
	paths, files := r.tree.regular(r.wanted)
	var sent int64
	for i, path := range paths {
		f := files[i]
		if sent += int64(len(f.data)); r.job.ArtifactBytes > 0 && sent > r.job.ArtifactBytes {
			result.Failure = &executor.Failure{
				Code: executor.Exhausted, Phase: executor.PhaseCollect,
				Message: fmt.Sprintf("the artifacts must be at most %d bytes together (engine.max_artifact_bytes)", r.job.ArtifactBytes),
			}
			if result.Status == executor.StatusSucceeded {
				result.Status = executor.StatusFailed
			}
			break
		}
		if err := sink.Artifact(f.header(path), bytes.NewReader(f.collected())); err != nil {
			return err
		}
		result.Artifacts = append(result.Artifacts, executor.Artifact{Path: path, SizeBytes: int64(len(f.data))})
		if f.resized {
			changed = append(changed, fmt.Sprintf("%q changed while it was collected: its size was %d and is %d", path, len(f.data), f.becomes))
		}
	}
	if len(changed) > 0 {
		result.Failure = &executor.Failure{Code: executor.Conflict, Phase: executor.PhaseCollect, Message: strings.Join(changed, "; ")}
		if result.Status == executor.StatusSucceeded {
			result.Status = executor.StatusFailed
		}
	}
	result.Phases.Collect = time.Since(begin)
	return nil
}

// collected returns the content of f as an Artifact, always of the size in its header.
func (f *file) collected() []byte {
	if !f.resized || f.becomes >= int64(len(f.data)) {
		return f.data
	}
	data := make([]byte, len(f.data))
	copy(data, f.data[:f.becomes])
	return data
}

// resize sets the size that a file gets while it is collected.
func resize(p *process, rest string) error {
	w := words(rest, 2)
	n, err := size(w[1])
	if err != nil {
		return err
	}
	f := p.run.tree.get(w[0])
	if f == nil {
		return p.crash(1, "FileNotFoundError", w[0])
	}
	changed := *f
	changed.resized, changed.becomes = true, n
	if err := p.run.tree.put(w[0], &changed, p.run.diskLimit()); err != nil {
		return p.crash(1, "OSError", err.Error())
	}
	return nil
}

func (r *run) wanted(path string, f *file) bool {
	if r.job.Spec.OutputsChanged && f.changed {
		return true
	}
	for _, glob := range r.job.Spec.Outputs {
		if match(glob, path) {
			return true
		}
	}
	return false
}
