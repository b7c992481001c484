package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// The same cases have the same verdicts in this process and on a server.
func TestRunEachJudgesEveryCase(t *testing.T) {
	bundle := withFake(t)
	const cases = `{"id":"right","args":["print hi"],"expect":{"stdout":"hi","compare":"lines"}}
{"id":"wrong","args":["print hi"],"expect":{"stdout":"ho"}}
{"args":["exit 3"],"expect":{"exit_code":3}}`
	each := func(stdin string, more ...string) (status int, stdout, stderr string) {
		var out, errs bytes.Buffer
		args := append([]string{"run", "--each", "-", "--parallel", "1"}, more...)
		status = Execute(t.Context(), append(args, "--command", "--", "fake", "-c"), IO{In: strings.NewReader(stdin), Out: &out, Err: &errs}, bundle)
		return status, out.String(), errs.String()
	}
	wanted := regexp.MustCompile(`^case  verdict           wall s      CPU s  memory MB  id     detail
   0  passed             0\.\d{3}      0\.000        8\.0  right
   1  wrong_output       0\.\d{3}      0\.000        8\.0  wrong  stdout differs in line 1: expected "ho", got "hi"
   2  passed             0\.\d{3}      0\.000        8\.0
3 cases: 2 passed, 1 wrong_output; wall \d+\.\d{3} s, CPU 0\.000 s, memory at most 8\.0 MB
$`)
	for _, where := range []string{"embedded", "server"} {
		if where == "server" {
			startServer(t, bundle)
		}
		if status, stdout, stderr := each(cases); status != 1 || !wanted.MatchString(stdout) {
			t.Errorf("%s: %d %q %q", where, status, stdout, stderr)
		}
		status, stdout, _ := each("["+strings.ReplaceAll(cases, "}\n{", "},\n{")+"]", "--json", "--stop-at-first-failure")
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var first pyexec.CaseResult
		if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || status != 1 || len(lines) != 4 || first.Result == nil || first.Result.Stdout != "hi\n" ||
			!strings.Contains(lines[2], `"skipped"`) || !strings.HasPrefix(lines[3], `{"summary":{"cases":3,"passed":1`) {
			t.Errorf("%s: %d %v %s", where, status, err, stdout)
		}
		if status, _, stderr := each(`{"args":["exit 0"]}`); status != 0 {
			t.Errorf("%s: %d %s", where, status, stderr)
		}
		for _, bad := range []string{"", `{"argv":[]}`, `[{}] {}`, `{"expect":{"compare":"near","stdout":""}}`} {
			if status, _, stderr := each(bad); status != 125 || stderr == "" {
				t.Errorf("%s: %q: %d %s", where, bad, status, stderr)
			}
		}
	}
}

// Also without a server, --parallel cases run at once.
func TestTheCasesOfRunEachRunBesideEachOther(t *testing.T) {
	bundle := withFake(t)
	awaittest.Ladder(t, 200*time.Millisecond, func(long time.Duration) (string, bool) {
		var out, errs bytes.Buffer
		cases := strings.Repeat(fmt.Sprintf(`{"args":["sleep %s"]}`, long), 2)
		args := []string{"run", "--each", "-", "--json", "--command", "--", "fake", "-c"}
		if status := Execute(t.Context(), args, IO{In: strings.NewReader(cases), Out: &out, Err: &errs}, bundle); status != 0 {
			t.Fatalf("%d %s", status, &errs)
		}
		var first, last pyexec.CaseResult
		for i, line := range strings.SplitN(out.String(), "\n", 3)[:2] {
			if err := json.Unmarshal([]byte(line), []any{&first, &last}[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out.String(), last.Result.StartedAt.Before(first.Result.FinishedAt)
	})
}

func TestCasesAreReadAsTheyAreWritten(t *testing.T) {
	for raw, want := range map[string]string{
		"\ufeff{\"id\":\"a\"}\r\n{\"id\":\"b\"}\r\n": "", "[{\"id\":\"a\"},{\"id\":\"b\"}]": "",
		"{\"id\":\"\xe9\"}": "must be UTF-8", `{"id":"\ud800"}`: "case 0: must not have half of a surrogate pair",
		`{} {"args":[1]}`: "case 1: args: must not be a number", `{} 5`: "case 1: value: must not be a number", "[{},null]": "case 1: must be an object (got null)",
		`[{}] {}`: "must end after the array", `{"x":1}`: "case 0: x: unknown field (a case has id, args, env, stdin, expect, which has stdout, exit_code, compare, tolerance_abs, tolerance_rel)",
		"{": "case 0: must be JSON: an array of objects, or one object after another: unexpected EOF", "[{]": "must be JSON: an array of objects, or one object after another: invalid character ']' looking for beginning of object key string", strings.Repeat(" ", maxCasesFile+1): "must have at most 33554432 bytes",
	} {
		cases, err := readCases(strings.NewReader(raw))
		if want == "" && (err != nil || len(cases) != 2 || cases[0].ID != "a") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%.40q: %v, %v", raw, cases, err)
		}
	}
}

// A standard input that can be read once only is that of every case, in this process and on a server.
func TestTheCasesOfRunEachReadAPipedStdin(t *testing.T) {
	bundle := withFake(t)
	file := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(file, []byte(strings.Repeat(`{"args":["read-stdin"],"expect":{"stdout":"shared"}}`, 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{"embedded", "server"} {
		if where == "server" {
			startServer(t, bundle)
		}
		var out, errs bytes.Buffer
		in := strings.NewReader("shared")
		args := []string{"run", "--each", file, "--stdin", "-", "--command", "--", "fake", "-c"}
		if status := Execute(t.Context(), args, IO{In: in, Out: &out, Err: &errs}, bundle); status != 0 {
			t.Errorf("%s: %d %s %s", where, status, out.String(), errs.String())
		}
	}
}

// endless is an input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestTheCopyOfAPipedStdinIsBounded(t *testing.T) {
	_, err := rereadable(t.Context(), &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(endless{}), nil }})
	if err == nil || !strings.Contains(err.Error(), "must have at most 33554432 bytes") {
		t.Errorf("an input without an end: %v", err)
	}
	gone := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = rereadable(ctx, &executor.Source{Open: func() (io.ReadCloser, error) {
		cancel(gone)
		r, _ := io.Pipe() // nothing comes
		return r, nil
	}})
	if !errors.Is(err, gone) {
		t.Errorf("an input that does not come: %v", err)
	}
}

func TestFlagsOfABatchAreRefusedWithoutCases(t *testing.T) {
	bundle := withFake(t)
	for want, args := range map[string][]string{
		"--parallel: must be given together with --each":              {"--parallel", "3"},
		"--stop-at-first-failure: must be given together with --each": {"--stop-at-first-failure"},
		"--parallel: must be between 1 and 64 (got 0)":                {"--each", "-", "--parallel", "0"},
		"--parallel: must be between 1 and 64 (got 65)":               {"--each", "-", "--parallel", "65"},
		"--each: must not be empty":                                   {"--each", ""},
		"--each: must not be -, because --stdin is":                   {"--each", "-", "--stdin", "-"},
		"--each: must not be given with --output or --artifact":       {"--each", "-", "--output", "x"},
	} {
		var out, errs bytes.Buffer
		args = append(append([]string{"run"}, args...), "--command", "--", "fake", "-c", "exit 0")
		if status := Execute(t.Context(), args, IO{In: strings.NewReader("{}"), Out: &out, Err: &errs}, bundle); status != 125 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d %s, want %s", args, status, errs.String(), want)
		}
	}
}
