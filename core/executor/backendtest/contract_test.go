package backendtest_test

import (
	"maps"
	"os"
	"path/filepath"
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

// TestTheGateRunsEachRule reads what the suites of a gate have recorded. Each rule about backends must have run on at least one backend,
// and not only have been skipped. It runs after all suites, and else does nothing.
func TestTheGateRunsEachRule(t *testing.T) {
	dir := os.Getenv(backendtest.RecordVariable)
	if dir == "" || os.Getenv("PYEXEC_TEST_RULES_END") == "" {
		t.Skip("the gate runs it at its end")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.rules"))
	if err != nil {
		t.Fatal(err)
	}
	runs, lanes := map[string]int{}, map[string]int{}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) == 4 && f[3] == "run" {
				runs[f[0]]++
				lanes[f[1]+" "+f[2]]++
			}
		}
	}
	total := 0
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		t.Logf("%-24s %4d rule-runs", lane, lanes[lane])
		total += lanes[lane]
	}
	t.Logf("%-24s %4d rule-runs", "all", total)
	for _, r := range backendtest.Rules() {
		if runs[r[0]] == 0 && !strings.HasPrefix(r[0], "PL-") { // TestAnHonestPluginKeepsTheRulesOfPlugins has those
			t.Errorf("no suite of this gate has run %s %s", r[0], r[1])
		}
	}
}
