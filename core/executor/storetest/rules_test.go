package storetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEveryRuleHasACaseAndEveryCaseARule(t *testing.T) {
	t.Parallel()
	rules, cases := map[string]string{}, map[string]int{}
	for _, r := range slices.Concat(StoreRules(), DurableRules(), BlobRules()) {
		if rules[r.ID] != "" {
			t.Errorf("%s stands twice", r.ID)
		}
		rules[r.ID] = r.Text
	}
	for _, c := range storeCases() {
		cases[c.id]++
	}
	for _, c := range slices.Concat(durableCases(), largeCases()) {
		cases[c.id]++
	}
	for _, c := range blobCases() {
		cases[c.id]++
	}
	for id := range rules {
		if cases[id] == 0 {
			t.Errorf("%s has no case", id)
		}
	}
	for id := range cases {
		if rules[id] == "" {
			t.Errorf("%s has no rule", id)
		}
	}
}

// TestContractHoldsTheRules checks that docs/contract.md has the same rules.
func TestContractHoldsTheRules(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/contract.md")
	if err != nil {
		t.Skipf("docs/contract.md is not here (a module outside its repository): %v", err)
	}
	for _, r := range slices.Concat(StoreRules(), DurableRules(), BlobRules()) {
		if line := fmt.Sprintf("| %s | %s |", r.ID, r.Text); !strings.Contains(string(raw), line) {
			t.Errorf("docs/contract.md lacks the line %q", line)
		}
	}
}
