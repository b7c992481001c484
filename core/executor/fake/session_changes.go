package fake

import (
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// shown are the files that Result.FilesChanged may name, as they are. A file in a tree is another one once it was changed.
func (t *tree) shown() map[string]*file {
	shown := map[string]*file{}
	for _, name := range t.names() {
		hidden := slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
			return strings.HasPrefix(part, ".") || part == "__pycache__"
		})
		if f := t.get(name); f != nil && !f.pipe && !hidden {
			shown[name] = f
		}
	}
	return shown
}

// see remembers what is there before the first Execution that asks.
func (s *session) see(r *run) {
	if r.job.Spec.FilesChanged && s.seen == nil {
		s.seen = s.tree.shown()
	}
}

// tell puts into r's Result what changed since the last time that one asked.
func (s *session) tell(r *run) {
	if !r.job.Spec.FilesChanged {
		return
	}
	before := s.seen
	s.seen = s.tree.shown()
	for name, f := range s.seen {
		if before[name] != f {
			r.result.FilesChanged = append(r.result.FilesChanged, executor.Artifact{Path: name, SizeBytes: int64(len(f.data))})
		}
	}
	list := r.result.FilesChanged
	slices.SortFunc(list, func(a, b executor.Artifact) int { return strings.Compare(a.Path, b.Path) })
	if n := len(list) - executor.MaxFilesChanged; n > 0 {
		r.result.FilesChanged, r.result.FilesOmitted = list[:executor.MaxFilesChanged], int64(n)
	}
}
