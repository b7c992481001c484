package jobs

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
)

// drainTime is how long the output of a stopped job without a bound of output is passed on after its grace. The file may have far more than
// a sink can take.
const drainTime = 5 * time.Second

// tooLate reports whether the output of a stopped job is no longer passed on, because nothing bounds it.
func (x *execution) tooLate() bool {
	select {
	case <-x.stopping:
	default:
		return false
	}
	if x.job.Limits.OutputBytes >= 0 {
		return false
	}
	if x.late.IsZero() {
		x.late = time.Now().Add(x.job.Limits.KillGrace + drainTime)
	}
	return time.Now().After(x.late)
}

// passLate passes on what follows the output of a stopped job, and returns the last record; an empty one if the runner was killed before it
// wrote one.
func (x *execution) passLate(ctx context.Context, alloc, folder string) (last job.Record, err error) {
	records, err := x.lateRecords(ctx, alloc, folder+job.EventsFile, lateBytes)
	for _, r := range records {
		switch {
		case err != nil:
			return job.Record{}, err
		case r.Artifact != nil:
			err = x.artifact(ctx, alloc, folder+job.ArtifactsFile, *r.Artifact)
		case r.Last():
			last = r
		}
	}
	return last, err
}

// lateBytes is how much of the end of a file of events is read first. It has room for the longest last record.
const lateBytes = job.MaxRecord + 1

// lateRecords waits for the end of an allocation and returns the records after the output, which is more than can be passed on in time; none
// if the runner was killed before it wrote the last one. It reads the last limit bytes of the file, and more if those have no output.
func (x *execution) lateRecords(ctx context.Context, alloc, path string, limit int64) ([]job.Record, error) {
	select {
	case <-x.tracked.life.Done():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for ; ; limit *= 4 {
		raw, err := x.cluster.end(ctx, alloc, path, limit)
		if err != nil {
			return nil, refusal("read "+path, err)
		}
		whole := int64(len(raw)) < limit
		if found, complete := afterOutput(raw, whole); complete {
			return found, nil
		}
	}
}

// afterOutput returns the records after the last output in the end of a file. complete reports whether those are all.
func afterOutput(raw []byte, whole bool) (found []job.Record, complete bool) {
	lines := bytes.Split(raw, []byte{'\n'})
	last := len(lines) - 1 // what was not written whole, or nothing
	first := 1             // its beginning may be missing
	if whole {
		first = 0
	}
	for _, line := range slices.Backward(lines[min(first, last):last]) {
		r, err := job.NewReader(bytes.NewReader(append(line, '\n')), executor.Resume{}).Next()
		if err != nil || r.Event != nil && r.Event.Body.Kind() == executor.KindOutput {
			complete = true
			break
		}
		found = append(found, r)
	}
	if len(found) > 0 && !found[0].Last() {
		return nil, true
	}
	slices.Reverse(found)
	return found, complete || whole
}
