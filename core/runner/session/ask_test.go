//go:build linux

package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestTheListOfVariablesIsBounded(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(make([]executor.Variable, protocol.MaxVariables+1))
	must(t, err)
	if list, err := parseVariables(raw); err != nil || len(list) != protocol.MaxVariables {
		t.Errorf("%d variables: %v", len(list), err)
	}
	raw, err = json.Marshal([]executor.Variable{{Name: strings.Repeat("ä", maxPreview), Type: "int", Preview: strings.Repeat("ä", maxPreview+1)}})
	must(t, err)
	list, err := parseVariables(raw)
	if err != nil || len(list) != 1 || len(list[0].Name) != 2*maxPreview || len(list[0].Preview) != 2*maxPreview || list[0].Type != "int" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range []string{"", "{}", "[1]"} {
		if list, err := parseVariables([]byte(bad)); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: %v, %v", bad, list, err)
		}
	}
}
