package jobs

import (
	"bytes"
	"context"
	"time"

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

// lastRecord waits for the end of an allocation and returns the last record of a file; an empty one if the runner was killed before it wrote
// one. What is before that record may be more than can be read in time.
func (x *execution) lastRecord(ctx context.Context, alloc, path string) (job.Record, error) {
	select {
	case <-x.tracked.life.Done():
	case <-ctx.Done():
		return job.Record{}, context.Cause(ctx)
	}
	raw, err := x.cluster.end(ctx, alloc, path, job.MaxRecord+1)
	if err != nil {
		return job.Record{}, refusal("read "+path, err)
	}
	line := bytes.TrimSuffix(raw, []byte{'\n'})
	if len(line) == len(raw) {
		return job.Record{}, nil
	}
	line = raw[bytes.LastIndexByte(line, '\n')+1:]
	if r, err := job.NewReader(bytes.NewReader(line), job.Offsets{}).Next(); err == nil && r.Last() {
		return r, nil
	}
	return job.Record{}, nil
}
