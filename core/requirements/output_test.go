package requirements

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// TestTheOutputOfAToolBecomesProgress: each step once, whole, without control characters and credentials.
func TestTheOutputOfAToolBecomesProgress(t *testing.T) {
	t.Parallel()
	var got []string
	steps := Steps{Notify: func(p executor.Progress) {
		got = append(got, fmt.Sprintf("%s %d/%d %s", p.Message, p.Done, p.Total, p.Unit))
	}}
	lines := Lines{Tell: steps.Line}
	for _, piece := range []string{"Using Python 3.12\nResol", "ved 3 packages in 1ms\r\n\x1b", "  Downloading https://user:secret@host/six.whl\nInstalledX\nInstalled 3 packages"} {
		if _, err := io.WriteString(&lines, piece); err != nil {
			t.Fatal(err)
		}
	}
	lines.Flush()
	lines.Flush()
	want := []string{"Resolved 3 packages in 1ms 0/3 packages", "Downloading https://host/six.whl 0/3 packages", "Installed 3 packages 3/3 packages"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLongLinesAreSplitAndBadBytesReplaced(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxLine)
	for name, pieces := range map[string][]string{
		"the end comes later":   {long + "123", "\xff\n"},
		"the end comes with it": {long + "123\xff\n"},
	} {
		var got []string
		lines := Lines{Tell: func(line string) { got = append(got, line) }}
		for _, piece := range append(pieces, long, "\n") {
			_, _ = io.WriteString(&lines, piece) // Write never fails
		}
		lines.Flush()
		if !slices.Equal(got, []string{long, "123\uFFFD", long}) {
			t.Errorf("%s: got %d lines, the second %.20q", name, len(got), got[min(1, len(got)-1)])
		}
	}
}

func TestWhatUsersSeeOfAToolsOutput(t *testing.T) {
	t.Parallel()
	lost := func(left int) string {
		return fmt.Sprintf("WARNING: Retrying (Retry(total=%d, connect=None)) after connection broken by 'Read timed out.'", left)
	}
	answered := "Using Python 3.12\n" + lost(4) + "\n" + lost(3) + "\nerror: /tmp/x/requirements.txt \r\n\nwarning: slow\nhttps://u:p@h/simple\n"
	if got, want := Clean(answered, "/tmp/x"), "error: requirements.txt\nhttps://h/simple"; got != want {
		t.Errorf("after an answer: got %q, want %q", got, want)
	}
	silent := lost(1) + "\n" + lost(0) + "\n" + lost(0) + "\nERROR: none\n"
	if got, want := Clean(silent, "/tmp/x"), lost(0)+"\nERROR: none"; got != want || Classify(got).Code != executor.Unavailable {
		t.Errorf("without an answer: got %q (%s), want %q (unavailable)", got, Classify(got).Code, want)
	}
}

func TestTheOutputOfAToolTellsWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]executor.Failure{
		"error: Failed to fetch: `https://host/`":                    {Code: executor.Unavailable, Message: "the package index could not be reached:\n"},
		"error: Connection refused":                                  {Code: executor.Unavailable, Message: "the package index could not be reached:\n"},
		"error: failed to write: No space left on device (os 28)":    {Code: executor.Exhausted, Message: "no space for the environment:\n"},
		"Failed to fetch: Disk quota exceeded":                       {Code: executor.Exhausted, Message: "no space for the environment:\n"},
		"error: failed to open: Permission denied (os error 13)":     {Code: executor.Internal},
		"Failed to fetch: /cache/x: Read-only file system":           {Code: executor.Internal},
		"No solution found: there is no version of nosuchpackage==9": {Code: executor.Invalid, Field: "requirements_txt"},
	} {
		want.Phase, want.Message = executor.PhasePrepare, want.Message+said
		if got := *Classify(said); got != want {
			t.Errorf("%s: %+v, want %+v", said, got, want)
		}
	}
}

func TestCredentialsAreRemovedFromEveryURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://user:secret@host/simple":                   "https://host/simple",
		"https://user:sec@ret@host/simple":                  "https://host/simple",
		"a http://u@h, then (git+https://u:p@h) and ssh://": "a http://h, then (git+https://h) and ssh://",
		"https://host/a@b user@host":                        "https://host/a@b user@host",
	} {
		if got := WithoutCredentials(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestATextIsCutAtARune(t *testing.T) {
	t.Parallel()
	for n, want := range []string{"…", "a…", "a…", "aä…", "aä…", "aä…", "aä…", "aä😀"} {
		if got := Shorten("aä😀", n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}
