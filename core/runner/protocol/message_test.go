//go:build linux

package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// The host gets a Result also where the program has made it too long for a frame.
func TestAResultIsCutToWhatAFrameHolds(t *testing.T) {
	t.Parallel()
	short := executor.Result{Status: executor.StatusSucceeded, ExitCode: new(3), FilesChanged: []executor.Artifact{{Path: "a"}}}
	long := short
	long.Requirements = []string{"a==1"}
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
		if len(got.Requirements) > 0 {
			t.Errorf("a result that was too long has the requirements %q", got.Requirements)
		}
		if (got.Failure == nil) != (test.want == "") || got.Failure != nil && (got.Failure.Code != executor.Internal || !strings.HasPrefix(got.Failure.Message, test.want)) {
			t.Errorf("the failure is %+v, want %q", got.Failure, test.want)
		}
	}
}

func TestASmallFrameThatCannotBeIsBroken(t *testing.T) {
	t.Parallel()
	output := func(p ...byte) error {
		_, err := ParseOutput(p)
		return err
	}
	ack := func(p []byte) error {
		_, err := ParseAck(p)
		return err
	}
	credit := func(c Channel) error {
		_, _, err := ParseCredit(CreditPayload(c, 1))
		return err
	}
	for name, test := range map[string]struct {
		err    error
		broken bool
	}{
		"output":                      {output(1, 0, 0, 0, 0, 0, 0, 0, 0, 'x'), false},
		"output without data":         {output(1, 0, 0, 0, 0, 0, 0, 0, 0), true},
		"output on no stream":         {output(3, 0, 0, 0, 0, 0, 0, 0, 0, 'x'), true},
		"output before its beginning": {output(1, 0x80, 0, 0, 0, 0, 0, 0, 0, 'x'), true},
		"an ack":                      {ack(Acknowledged{Events: 1}.Payload()), false},
		"an ack that is too short":    {ack(Acknowledged{}.Payload()[1:]), true},
		"a negative ack":              {ack(Acknowledged{Events: -1}.Payload()), true},
		"credit":                      {credit(ChannelArtifact), false},
		"credit for channel 0":        {credit(0), true},
		"credit for channel 4":        {credit(ChannelArtifact + 1), true},
	} {
		if errors.Is(test.err, ErrFrame) != test.broken || !test.broken && test.err != nil {
			t.Errorf("%s: got %v", name, test.err)
		}
	}
}

func TestAFailureNamesTheLimitAsItWasSet(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]string{
		0:         "config.memory_mb: the program needed more memory than it may have; raise the limit",
		64 << 20:  "config.memory_mb: the program needed more memory than 64 MB; raise the limit",
		1<<20 + 1: "config.memory_mb: the program needed more memory than 1048577 bytes; raise the limit",
	} {
		if f := OutOfMemory(limit); f.Message != want || f.Field != "config.memory_mb" || f.Code != executor.Exhausted || f.Phase != executor.PhaseRun {
			t.Errorf("got %+v, want %q", f, want)
		}
	}
	if f := DiskFull(1 << 20); f.Message != "config.disk_mb: the program's disk was full; it holds 1 MB; raise the limit" || f.Field != "config.disk_mb" {
		t.Errorf("got %+v", f)
	}
}
