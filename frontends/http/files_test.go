package httpfrontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheBoundsOfAJSONBodysFiles(t *testing.T) {
	t.Parallel()
	// many is the members of n files.
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d.py":"",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	deep := strings.Repeat(strings.Repeat("d", 255)+"/", 15)
	for name, tt := range map[string]struct {
		body  string
		field string
	}{
		"as many as there may be":          {`{"files":{` + many(maxFiles) + `}}`, ""},
		"one more":                         {`{"files":{` + many(maxFiles+1) + `}}`, "files"},
		"the longest path":                 {`{"files":{"` + deep + strings.Repeat("x", 255) + `":""},"code":"x"}`, ""},
		"an entrypoint that is not clean":  {`{"files":{"main.py":""},"entrypoint":"./main.py"}`, ""},
		"another language needs no Python": {`{"files":{"run.sh":""},"language":"shell"}`, ""},
		"the shortest sampling":            {`{"code":"x","sample_interval_seconds":0.01}`, ""},
		"the longest key":                  {`{"code":"x","idempotency_key":"` + strings.Repeat("k", 255) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := postJSON(t, handlerOf(t, hello().service()), "/api/v1/exec/sync", tt.body)
			if tt.field != "" {
				wantProblem(t, w, 422, executor.Invalid, tt.field)
			} else if w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	if validPath(deep + "x/" + strings.Repeat("x", 254)) {
		t.Error("a path of 4096 bytes is possible")
	}
}

func TestRequirementsThatAreSaidAreNotLookedFor(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"files":{"main.py":""},"requirements_txt":"idna"}`); w.Code != 200 || got.spec.Detect != nil {
		t.Errorf("%d, detect %v", w.Code, got.spec.Detect)
	}
}
