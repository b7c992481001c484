package uvbackend

import (
	"os"
	"testing"
)

func TestUIDsOfPrograms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config      Config
		first, last int
		ok          bool
	}{
		"the default":        {Config{}, 60600, 61111, true},
		"a range":            {Config{RunAs: "70000-70009"}, 70000, 70009, true},
		"one uid":            {Config{RunAs: "70000"}, 70000, 70000, true},
		"no isolation":       {Config{Isolation: IsolationNone}, 0, 0, false},
		"no range at all":    {Config{RunAs: "nobody"}, 0, 0, false},
		"a range of nothing": {Config{RunAs: "9-8"}, 0, 0, false},
	} {
		first, last, ok := c.config.UIDs()
		want := c.ok && os.Geteuid() == 0
		if ok != want || want && (first != c.first || last != c.last) {
			t.Errorf("%s: %d-%d, %t", name, first, last, ok)
		}
	}
}
