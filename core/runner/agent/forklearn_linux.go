package agent

import (
	"slices"
	"time"
)

// What a runner learns about the imports of the programs of a key.
const (
	learnLast    = 12 // programs that count
	learnFirst   = 8  // programs before anything is learned
	learnPause   = 64 // programs from one renewal of a server to the next
	maxLearned   = 32 // modules of a server
	maxLearnKeys = 16
	learnBar     = 30 * time.Minute // without learned modules, after a server with such modules has failed
)

// learning is what the last programs of a key import.
type learning struct {
	// last has the imports of the last programs. It is nil for a program that is no fork of a server with modules.
	last   [][]string
	pause  int // programs until a server may be renewed
	barred time.Time
}

// learn notes a program that was a fork, or would have been. fits reports whether it may be a fork of a server with modules.
func (f *forks) learn(key forkKey, imports []string, fits bool) {
	if !key.learn {
		return
	}
	l := f.learned[key]
	if l == nil {
		if f.learned == nil || len(f.learned) >= maxLearnKeys {
			f.learned = map[forkKey]*learning{}
		}
		l = &learning{}
		f.learned[key] = l
	}
	switch {
	case !fits:
		imports = nil
	case imports == nil:
		imports = []string{}
	}
	l.last = append(l.last, imports)
	l.last = l.last[max(len(l.last)-learnLast, 0):]
	l.pause = max(l.pause-1, 0)
}

// wanted lists the modules that more than half of the last programs of key import. It lists none if a program does not fit.
func (f *forks) wanted(key forkKey) (names []string) {
	l := f.learned[key]
	if l == nil || len(l.last) < learnFirst || time.Now().Before(l.barred) {
		return nil
	}
	times := map[string]int{}
	for _, imports := range l.last {
		if imports == nil {
			return nil
		}
		for _, name := range imports {
			times[name]++
		}
	}
	for name, n := range times {
		if n > len(l.last)/2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxLearned)]
}

// outdated reports whether a new server should replace the present one: most programs import a module that it has not tried to import, or
// its modules are of no more use.
func (f *forks) outdated() bool {
	key, has := f.server.key, f.server.config
	l := f.learned[key]
	if l == nil || l.pause > 0 {
		return false
	}
	wanted := f.wanted(key)
	missing := slices.ContainsFunc(wanted, func(name string) bool {
		return !slices.Contains(has.Learned, name) && !slices.Contains(has.Preimport, name)
	})
	if useless := len(wanted) == 0 && len(has.Learned) > 0; !missing && !useless {
		return false
	}
	l.pause = learnPause
	return true
}

// bar makes the next servers start without learned modules if s, which has failed, had some. It reports whether s had some.
func (f *forks) bar(s *forkServer) bool {
	l := f.learned[s.key]
	if len(s.config.Learned) == 0 || l == nil {
		return false
	}
	l.barred = time.Now().Add(learnBar)
	return true
}
