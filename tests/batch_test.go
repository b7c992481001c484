package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
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
if case == "slow": time.sleep(60)
if case == "memory": x = bytearray(1 << 30)
if case == "flood":
    for _ in range(100): os.write(1, b"x" * 65536)
if case == "forever":
    while True: os.write(2, b"x" * 65536)
print(sys.stdin.read() + want if case == "pass" else "wrong")
`

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
	metadata := `{"config":{"timeout_seconds":3,"memory_mb":64,"output_bytes":1048576},"parallel":4,"cases":[` + strings.Join(cases, ",") + `]}`
	a := s.multipart("/api/v1/exec/batch", part{name: "metadata", contentType: "application/json", body: []byte(metadata)},
		part{name: "tar", filename: "x.tar", body: tarOf(t, file{"main.py", judged}, file{"data/want", "expected"})})
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	got, ids := make([]string, len(want)), map[string]bool{}
	var last struct{ Summary map[string]any }
	for line := range bytes.Lines(bytes.TrimSpace(a.body)) {
		var record struct {
			Index   *int
			Verdict string
			Detail  string
			Result  struct {
				ExecutionID string `json:"execution_id"`
				Stderr      string
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%v: %.300s", err, line)
		}
		if record.Index == nil {
			if err := json.Unmarshal(line, &last); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got[*record.Index], ids[record.Result.ExecutionID] = record.Verdict, true
		if record.Verdict != want[*record.Index] {
			t.Errorf("case %s: %s (%s), want %s; stderr %.300s", cases[*record.Index], record.Verdict, record.Detail, want[*record.Index], record.Result.Stderr)
		}
	}
	if len(ids) != len(want) || last.Summary == nil {
		t.Errorf("%d executions, summary %v, verdicts %v", len(ids), last.Summary, got)
	}
}
