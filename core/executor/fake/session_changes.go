package fake

import (
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// shown returns the files that Result.FilesChanged may name. A change of a file replaces its *file, so pointers can be compared.
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

// see records the files before the first Execution that asks for changes.
func (s *session) see(r *run) {
	if r.job.Spec.FilesChanged && s.seen == nil {
		s.seen = s.tree.shown()
	}
}

// tell adds to r's Result the files that have changed since the last Execution that asked for changes.
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
