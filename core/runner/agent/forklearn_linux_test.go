package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/runner/zygote"
)

// learner has the fork server of one key, and what is learned of its programs.
type learner struct {
	forks
	key forkKey
}

func newLearner(learned ...string) *learner {
	l := &learner{key: forkKey{fork: "alice", learn: true}}
	l.server = ended(l.key, true, nil)
	l.server.config = zygote.Config{Learned: learned, Preimport: []string{"set"}}
	return l
}

// run notes n programs that import modules.
func (l *learner) run(n int, modules ...string) {
	for range n {
		l.learn(l.key, modules, true)
	}
}

func (l *learner) wants(t *testing.T, modules string, outdated bool) {
	t.Helper()
	if got := fmt.Sprint(l.wanted(l.key)); got != modules {
		t.Errorf("the programs want %s, must be %s", got, modules)
	}
	if got := l.outdated(); got != outdated {
		t.Errorf("the server is outdated: %v, must be %v", got, outdated)
	}
}

func TestModulesThatMostProgramsImportAreLearned(t *testing.T) {
	t.Parallel()
	l := newLearner()
	l.wants(t, "[]", false)
	l.run(4, "json", "set")
	l.run(3, "set")
	l.wants(t, "[]", false) // too few programs
	l.run(1, "numpy", "set")
	l.wants(t, "[set]", false) // half of them import json
	l.run(2, "numpy", "json", "set")
	l.wants(t, "[json set]", true)
	l.wants(t, "[json set]", false) // one renewal
	l.server.config.Learned = []string{"json"}
	l.run(learnLast, "numpy")
	l.wants(t, "[numpy]", false) // it comes soon after the other
	l.run(learnPause-learnLast, "numpy")
	l.wants(t, "[numpy]", true)
}

func TestAServerIsNotRenewedForWhatItHasTried(t *testing.T) {
	t.Parallel()
	l := newLearner("json", "no_such_module")
	l.run(learnLast, "json", "no_such_module", "set")
	l.wants(t, "[json no_such_module set]", false)
	l.run(learnLast, "json") // it has too many, and keeps them
	l.wants(t, "[json]", false)
	l.run(learnLast)
	l.wants(t, "[]", true)
}

func TestNothingIsLearnedIfAProgramDoesNotFit(t *testing.T) {
	t.Parallel()
	l := newLearner("json")
	l.run(learnLast, "json", "csv")
	l.learn(l.key, []string{"json"}, false)
	l.wants(t, "[]", true)
	l.run(learnLast-1, "json")
	l.wants(t, "[]", false)
	l.run(1, "json")
	l.wants(t, "[json]", false)
	l.run(1) // it fits, and imports nothing
	l.wants(t, "[json]", false)
}

func TestAServerWithLearnedModulesThatFailsIsFollowedByOneWithout(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{true, false} {
		l := newLearner("json")
		l.run(learnLast, "json")
		l.server = ended(l.key, used, errors.New("it hangs"))
		l.server.config.Learned = []string{"json"}
		l.close()
		if l.permits(l.key); !l.permits(l.key) {
			t.Error("there is no server any more")
		}
		l.server = ended(l.key, true, nil)
		l.wants(t, "[]", false)
		l.run(learnLast, "json")
		l.wants(t, "[]", false)
		l.learned[l.key].barred = time.Now()
		l.wants(t, "[json]", true)
		l.server.err = errors.New("it hangs without them, too")
		if l.close(); l.permits(l.key) {
			t.Error("the server is started again at once")
		}
	}
}

func TestNothingIsLearnedUnlessAllowed(t *testing.T) {
	t.Parallel()
	l := newLearner()
	l.key.learn, l.server.key.learn = false, false
	l.run(learnLast, "json")
	l.wants(t, "[]", false)
	if len(l.learned) > 0 {
		t.Error("the programs are noted")
	}
}

func TestWhatIsLearnedIsBounded(t *testing.T) {
	t.Parallel()
	l := newLearner()
	for i := range 1000 {
		l.learn(forkKey{fork: fmt.Sprint(i), learn: true}, nil, true)
	}
	var many []string
	for i := range 2 * maxLearned {
		many = append(many, fmt.Sprint("m", i))
	}
	l.run(1000, many...)
	if got := l.wanted(l.key); len(got) != maxLearned || len(l.learned) > maxLearnKeys || len(l.learned[l.key].last) != learnLast {
		t.Errorf("%d modules, %d keys, %d programs", len(got), len(l.learned), len(l.learned[l.key].last))
	}
}
