package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// judged is a program that does what its first argument says, and spoils its files first.
const judged = `
import os, sys, time
want = open("data/want").read()
code = open("main.py").read()
for name in "main.py", "data/want":
    with open(name, "w") as f: f.write("spoiled")
os.rename("data", "elsewhere")
case = sys.argv[1]
if case == "fail": sys.exit(3)
if case == "crash": os.abort()
if case == "slow": time.sleep(600)
if case == "memory": x = bytearray(1 << 30)
if case == "flood":
    for _ in range(100): os.write(1, b"x" * 65536)
if case == "forever":
    while True: os.write(2, b"x" * 65536)
print(sys.stdin.read() + want if case == "pass" else "wrong")
`

// verdict is a line of a batch's answer: about a case, or without an index the summary.
type verdict struct {
	Index   *int
	Verdict string
	Detail  string
	Result  struct {
		ExecutionID string `json:"execution_id"`
		Stderr      string
	}
	Summary map[string]any
}

// TestABatchHasTheRightVerdicts runs a mixed batch on the default backend. Between cases that go wrong there are cases that pass, so each
// slot has both, and finds its files as they were sent.
func TestABatchHasTheRightVerdicts(t *testing.T) {
	s := startServer(t, nil)
	verdicts := map[string]string{
		"pass": "passed", "wrong": "wrong_output", "fail": "failed", "crash": "failed", "slow": "timed_out", "memory": "out_of_memory",
		"flood": "wrong_output", "forever": "timed_out",
	}
	var cases, want []string
	add := func(name string) {
		input := fmt.Sprint("input ", len(cases), " ")
		cases = append(cases, fmt.Sprintf(`{"id":"%d %s","args":[%[2]q],"stdin":%q,"expect":{"stdout":%q}}`, len(cases), name, input, input+"expected\n"))
		want = append(want, verdicts[name])
	}
	for _, name := range []string{"fail", "crash", "slow", "memory", "flood", "forever", "wrong"} {
		for range 4 {
			add("pass")
		}
		add(name)
	}
	judge := func(seconds int) (list []verdict) {
		metadata := fmt.Sprintf(`{"config":{"timeout_seconds":%d,"memory_mb":64,"output_bytes":1048576},"parallel":4,"cases":[%s]}`, seconds, strings.Join(cases, ","))
		a := s.multipart("/api/v1/exec/batch", part{name: "metadata", contentType: "application/json", body: []byte(metadata)},
			part{name: "tar", filename: "x.tar", body: tarOf(t, file{"main.py", judged}, file{"data/want", "expected"})})
		if a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for line := range bytes.Lines(bytes.TrimSpace(a.body)) {
			var v verdict
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatalf("%v: %.300s", err, line)
			}
			list = append(list, v)
		}
		return list
	}
	late := func(v verdict) bool {
		return v.Index != nil && v.Verdict == "timed_out" && want[*v.Index] != "timed_out"
	}
	list := judge(3)
	if slices.ContainsFunc(list, late) { // on a busy machine an interpreter may need longer to start
		list = judge(30)
	}
	got, ids := make([]string, len(want)), map[string]bool{}
	var summary map[string]any
	for _, v := range list {
		if v.Index == nil {
			summary = v.Summary
			continue
		}
		got[*v.Index], ids[v.Result.ExecutionID] = v.Verdict, true
		if v.Verdict != want[*v.Index] {
			t.Errorf("case %s: %s (%s), want %s; stderr %.300s", cases[*v.Index], v.Verdict, v.Detail, want[*v.Index], v.Result.Stderr)
		}
	}
	if len(ids) != len(want) || summary == nil {
		t.Errorf("%d executions, summary %v, verdicts %v", len(ids), summary, got)
	}
}
