package backendtest_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/storetest"
)

// ruleLine matches a line of a table of rules in docs/contract.md.
var ruleLine = regexp.MustCompile(`^\| ((?:BE|EV|SE|PL|ST|BL)-\d{2,3}) \| (.+) \|$`)

// TestTheContractAndTheSuitesHaveTheSameRules compares the rules in docs/contract.md with those of the suite, in both directions.
func TestTheContractAndTheSuitesHaveTheSameRules(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		m := ruleLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if _, twice := written[m[1]]; twice {
			t.Errorf("docs/contract.md has %s twice", m[1])
		}
		written[m[1]] = m[2]
	}
	checked := map[string]string{}
	add := func(id, name string) {
		if _, twice := checked[id]; twice {
			t.Errorf("a suite has %s twice", id)
		}
		checked[id] = name
	}
	for _, r := range backendtest.Rules() {
		add(r[0], r[1])
	}
	for _, r := range slices.Concat(storetest.StoreRules(), storetest.DurableRules(), storetest.BlobRules()) {
		add(r.ID, r.Text)
	}
	for id, text := range written {
		if name, ok := checked[id]; !ok {
			t.Errorf("%s is a rule without a case", id)
		} else if name != text {
			t.Errorf("%s reads %q in docs/contract.md and %q in the suite", id, text, name)
		}
	}
	for id := range checked {
		if _, ok := written[id]; !ok {
			t.Errorf("%s is a case without a rule in docs/contract.md", id)
		}
	}
}
