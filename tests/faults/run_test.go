package faults

import (
	"strings"
	"testing"
)

// TestAnOutcomeIsWhatGoTestSaid reads what `go test -json` prints for each way to end.
func TestAnOutcomeIsWhatGoTestSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines  string
		ok     bool
		status Status
		by     string
		ran    int
	}{
		"all pass":         {`{"Action":"run","Package":"p","Test":"TestA"} {"Action":"pass","Package":"p","Test":"TestA"} {"Action":"pass","Package":"p","Elapsed":1}`, true, Survived, "", 1},
		"nothing runs":     {`{"Action":"pass","Package":"p","Elapsed":1}`, true, Survived, "", 0},
		"skipped":          {`{"Action":"run","Package":"p","Test":"TestA"} {"Action":"skip","Package":"p","Test":"TestA"} {"Action":"pass","Package":"p"}`, true, Survived, "", 0},
		"a subtest fails":  {`{"Action":"fail","Package":"p","Test":"TestA/sub"} {"Action":"fail","Package":"p","Test":"TestA"} {"Action":"fail","Package":"p"}`, false, Noticed, "TestA/sub", 0},
		"the end fails":    {`{"Action":"pass","Package":"p","Test":"TestA"} {"Action":"fail","Package":"p"}`, false, Noticed, "the package p", 0},
		"no compilation":   {`{"Action":"build-output","ImportPath":"p"} {"Action":"build-fail","ImportPath":"p"} {"Action":"fail","Package":"p","FailedBuild":"p"}`, false, Broken, "does not compile", 0},
		"a test hangs":     {`{"Action":"output","Output":"panic: test timed out after 3s\n\trunning tests:\n\t\tTestA (3s)\n"} {"Action":"fail","Package":"p","Test":"TestA"} {"Action":"fail","Package":"p"}`, false, Hung, "TestA", 0},
		"go test is ended": {`{"Action":"run","Package":"p","Test":"TestA"}`, false, Hung, "go test did not end", 1},
	} {
		o := outcome{status: Survived}
		o.read([]byte(strings.ReplaceAll(c.lines, "} {", "}\n{")), c.ok)
		if o.status != c.status || o.by != c.by || o.ran != c.ran {
			t.Errorf("%s: %s by %q, %d tests ran; want %s by %q, %d", name, o.status, o.by, o.ran, c.status, c.by, c.ran)
		}
	}
}
