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
	var got []string
	lines := Lines{Tell: func(line string) { got = append(got, line) }}
	_, _ = lines.Write([]byte(strings.Repeat("x", MaxLine+10))) // Write never fails
	_, _ = lines.Write([]byte("\xff\n"))
	if len(got) != 2 || len(got[0]) != MaxLine || !strings.HasSuffix(got[1], "x\uFFFD") {
		t.Errorf("got %d lines, the last %q", len(got), got[len(got)-1])
	}
}

func TestWhatUsersSeeOfAToolsOutput(t *testing.T) {
	t.Parallel()
	said := "Using Python 3.12\nWARNING: Retrying a\nWARNING: Retrying b\nerror: /tmp/x/requirements.txt \r\n\nwarning: slow\nhttps://u:p@h/simple\n"
	if got, want := Clean(said, "/tmp/x"), "WARNING: Retrying a\nerror: requirements.txt\nhttps://h/simple"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
