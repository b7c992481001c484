package needtest

import (
	"fmt"
	"runtime"
	"testing"
)

// spy notes how a test ends.
type spy struct {
	testing.TB
	end string
}

func (s *spy) Helper() {}

func (s *spy) Skipf(format string, args ...any) {
	s.end = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (s *spy) Fatalf(format string, args ...any) {
	s.end = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestAMissingThingFailsATestOnlyWhereItIsRequired(t *testing.T) {
	for _, c := range []struct {
		require, word string
		have          bool
		want          string
	}{
		{"", "node", true, "went on"},
		{"node", "node", true, "went on"},
		{"", "node", false, "skipped: SKIPPED, node is missing: no program"},
		{"index,root", "node", false, "skipped: SKIPPED, node is missing: no program"},
		{"index,nodes", "node", false, "skipped: SKIPPED, node is missing: no program"},
		{"index,node,root", "node", false, "failed: node is required by PYEXEC_TEST_REQUIRE and missing: no program"},
		{"index node", "node", false, "failed: node is required by PYEXEC_TEST_REQUIRE and missing: no program"},
	} {
		t.Setenv("PYEXEC_TEST_REQUIRE", c.require)
		s := &spy{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Need(s, c.have, c.word, "no program")
			s.end = "went on"
		}()
		<-done
		if s.end != c.want {
			t.Errorf("%q with %q: %s, want %s", c.word, c.require, s.end, c.want)
		}
	}
}

func TestALongTestRunsOnlyInALongPart(t *testing.T) {
	for value, want := range map[string]string{"": "skipped: LONG (make test-long): the other one", "0": "skipped: LONG (make test-long): the other one", "1": "went on"} {
		t.Setenv("PYEXEC_TEST_LONG", value)
		s := &spy{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Long(s, "the other one")
			s.end = "went on"
		}()
		<-done
		if s.end != want {
			t.Errorf("%q: %s, want %s", value, s.end, want)
		}
	}
}
