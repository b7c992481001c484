package uvbackend

import (
	"fmt"
	"slices"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxTree bounds a Workspace whose files a runner keeps, in bytes of its tar. Each slot keeps one at most.
	maxTree = 256 << 20
	// recentTrees is how many Workspaces are remembered.
	recentTrees = 256
)

// trees remembers the Workspaces of late, to know those that come again.
type trees struct {
	mu     sync.Mutex
	recent []string // the last one first
}

// again returns the name under which a runner may keep the Workspace of job. It is empty at the first time: keeping costs more than it
// saves then.
func (t *trees) again(job executor.Job) string {
	w := job.Workspace
	if w == nil || !w.Replayable || w.Digest == "" || w.SizeBytes > maxTree {
		return ""
	}
	// The limit is part of the name, because it bounds what is unpacked.
	name := fmt.Sprintf("%q %s %d", job.Owner, w.Digest, job.Limits.DiskBytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.recent, name)
	if i > 0 {
		t.recent = slices.Delete(t.recent, i, i+1)
	}
	if i != 0 {
		t.recent = slices.Insert(t.recent, 0, name)
	}
	t.recent = t.recent[:min(len(t.recent), recentTrees)]
	if i < 0 {
		return ""
	}
	return name
}
