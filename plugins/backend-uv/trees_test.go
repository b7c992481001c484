package uvbackend

import (
	"fmt"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAWorkspaceIsKeptWhenItComesAgain(t *testing.T) {
	t.Parallel()
	var known trees
	job := func(owner, digest string, change func(*executor.Job)) executor.Job {
		j := executor.Job{Owner: owner, Workspace: &executor.Source{Digest: digest, Replayable: true, SizeBytes: 100}, Limits: executor.Limits{DiskBytes: 1 << 20}}
		if change != nil {
			change(&j)
		}
		return j
	}
	first := known.again(job("me", "d", nil))
	name := known.again(job("me", "d", nil))
	if first != "" || name == "" || known.again(job("me", "d", nil)) != name {
		t.Errorf("%q, then %q", first, name)
	}
	for what, j := range map[string]executor.Job{
		"another owner":     job("you", "d", nil),
		"another workspace": job("me", "e", nil),
		"another limit":     job("me", "d", func(j *executor.Job) { j.Limits.DiskBytes++ }),
		"a stream":          job("me", "d", func(j *executor.Job) { j.Workspace.Replayable = false }),
		"no digest":         job("me", "", nil),
		"a large one":       job("me", "d", func(j *executor.Job) { j.Workspace.SizeBytes = maxTree + 1 }),
		"none":              job("me", "d", func(j *executor.Job) { j.Workspace = nil }),
	} {
		if got := known.again(j); got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
	for i := range 2 * recentTrees {
		known.again(job("me", fmt.Sprint(i), nil))
	}
	if len(known.recent) != recentTrees || known.again(job("me", "d", nil)) != "" {
		t.Errorf("%d are remembered", len(known.recent))
	}
}
