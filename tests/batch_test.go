package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// judged is a class of answers to one task: it does what its first argument says, and spoils its files first.
const judged = `
import ctypes, hashlib, os, sys, threading, time
want = open("data/want").read()
code = open("main.py").read()
for name in "main.py", "data/want":
    with open(name, "w") as f: f.write("spoiled")
os.rename("data", "elsewhere")
case = sys.argv[1]
def burn(seconds):
    while time.process_time() < seconds: pass
def hashes():
    while True: hashlib.sha256(b"x" * 1000000)
if case == "fail": sys.exit(3)
if case == "text": sys.exit("I give up")
if case == "segv": ctypes.string_at(0)
if case == "syntax": exec("def f(:")
if case == "module": import numpy_not_there
if case == "beyond": sys.stdin.read(), input()
if case == "endless": burn(3600)
if case == "threads": [threading.Thread(target=hashes).start() for _ in range(4)]
if case == "bomb":
    while True:
        try: os.fork()
        except OSError: pass
while case == "children":
    if os.fork() == 0:
        burn(0.02)
        os._exit(0)
    os.wait()
if case == "crash": os.abort()
if case == "slow": time.sleep(600)
if case == "memory": x = bytearray(1 << 30)
if case == "flood":
    for _ in range(100): os.write(1, b"x" * 65536)
if case == "forever":
    while True: os.write(2, b"x" * 65536)
answer = sys.stdin.read() + want
if case == "bytes": answer = "\udcff" + answer
if case == "line": answer = "9" * 100000
if case == "words": answer = answer.replace(" ", "\n")
if case == "blanks": answer += " \t\n\n"
if case == "windows": answer += "\r"
sys.stdout.reconfigure(errors="surrogateescape")
print("wrong" if case in ("wrong", "flood", "forever") else answer)
`

// class has the verdict of each answer, and a part of its detail.
var class = map[string][2]string{
	"pass": {"passed"}, "blanks": {"passed"}, "windows": {"passed"},
	"wrong": {"wrong_output", `expected "input`}, "words": {"wrong_output", `got "input"`}, "bytes": {"wrong_output", `got "\xffinput`},
	"line": {"wrong_output", `9"…`}, "flood": {"wrong_output", "output_bytes"},
	"fail": {"failed", "expected 0, got 3"}, "text": {"failed", "got 1: I give up"}, "crash": {"failed", "SIGABRT"}, "segv": {"failed", "SIGSEGV"},
	"syntax": {"failed", "SyntaxError"}, "module": {"failed", "No module named 'numpy_not_there'"}, "beyond": {"failed", "EOFError"},
	"endless": {"timed_out", "config.cpu_seconds"}, "threads": {"timed_out", "config.cpu_seconds"}, "children": {"timed_out", "config.cpu_seconds"},
	"slow": {"timed_out", "config.timeout_seconds"}, "forever": {"timed_out", "_seconds"},
	"memory": {"out_of_memory", "64 MB"}, "bomb": {"", "config."},
}

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
	var cases []string
	var want [][2]string
	add := func(name string) {
		input := fmt.Sprint("input ", len(cases), " ")
		cases = append(cases, fmt.Sprintf(`{"id":"%d %s","args":[%[2]q],"stdin":%q,"expect":{"stdout":%q}}`, len(cases), name, input, input+"expected\n"))
		want = append(want, class[name])
	}
	for i, name := range slices.Sorted(maps.Keys(class)) {
		for range i % 3 {
			add("pass")
		}
		add(name)
	}
	judge := func(seconds int) (list []verdict) {
		metadata := fmt.Sprintf(`{"config":{"timeout_seconds":%d,"cpu_seconds":0.6,"memory_mb":64,"output_bytes":1048576},"parallel":4,"cases":[%s]}`, seconds, strings.Join(cases, ","))
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
		if v.Index == nil || v.Verdict != "timed_out" {
			return false
		}
		w := want[*v.Index]
		return w[0] != "timed_out" && w[0] != "" || !strings.Contains(v.Detail, w[1])
	}
	list := judge(10)
	if slices.ContainsFunc(list, late) { // on a busy machine an interpreter may need longer to start
		list = judge(60)
	}
	got, ids := make([]string, len(want)), map[string]bool{}
	var summary map[string]any
	for _, v := range list {
		if v.Index == nil {
			summary = v.Summary
			continue
		}
		got[*v.Index], ids[v.Result.ExecutionID] = v.Verdict, true
		if w := want[*v.Index]; v.Verdict != w[0] && w[0] != "" || !strings.Contains(v.Detail, w[1]) || v.Verdict != "passed" && v.Detail == "" {
			t.Errorf("case %s: %s (%s), want %s; stderr %.300s", cases[*v.Index], v.Verdict, v.Detail, w, v.Result.Stderr)
		}
	}
	if len(ids) != len(want) || summary == nil {
		t.Errorf("%d executions, summary %v, verdicts %v", len(ids), summary, got)
	}
}
