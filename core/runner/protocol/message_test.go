//go:build linux

package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// The host gets a Result also where the program has made it too long for a frame.
func TestAResultIsCutToWhatAFrameHolds(t *testing.T) {
	t.Parallel()
	short := executor.Result{Status: executor.StatusSucceeded, ExitCode: new(3), FilesChanged: []executor.Artifact{{Path: "a"}}}
	long := short
	for range 3 {
		long.FilesChanged = append(long.FilesChanged, executor.Artifact{Path: strings.Repeat("x", MaxControl/2)})
	}
	for _, test := range []struct {
		r    executor.Result
		want string
	}{{short, ""}, {long, "the result has"}} {
		raw, err := EncodeResult(test.r)
		if err != nil || len(raw) > MaxPayload(FrameExited) {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		var got executor.Result
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.Status != test.r.Status || got.ExitCode == nil || *got.ExitCode != 3 || (len(got.FilesChanged) == 1) != (test.want == "") {
			t.Errorf("got %+v", got)
		}
		if (got.Failure == nil) != (test.want == "") || got.Failure != nil && (got.Failure.Code != executor.Internal || !strings.HasPrefix(got.Failure.Message, test.want)) {
			t.Errorf("the failure is %+v, want %q", got.Failure, test.want)
		}
	}
}
