//go:build linux

package runner

import (
	"archive/tar"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// changingSink is a Sink that lets a program change its files between an Artifact's head and its data.
type changingSink struct {
	*record
	change func(name string)
}

func (c changingSink) Artifact(h *tar.Header, body io.Reader) error {
	c.change(h.Name)
	return c.record.Artifact(h, body)
}

func TestASessionGoesOnWhileItsFilesAreCollected(t *testing.T) {
	const size = 8 << 20 // more than is on its way before the Sink reads
	r := openSession(t, pythonSession())
	r.wants(t, `
import os, threading, time
os.mkdir("out")
def change():
    while not os.path.exists("change"): time.sleep(0.005)
    os.truncate("out/shrinks", 1000)
    open("out/grows", "ab").write(b"b" * 1000)
    os.rename("change", "changed")
`, "", "")
	for at, set := range map[string]func(*Start){
		"out/grows":   func(s *Start) { s.Outputs = []string{"out/"} },
		"out/shrinks": func(s *Start) { s.OutputsChanged = true },
	} {
		start := cellOf(`
for name in ("grows", "shrinks", "stays"):
    open("out/" + name, "wb").write(b"a" * 8388608)
threading.Thread(target=change, daemon=True).start()
`)
		set(&start)
		rec := changingSink{newRecord(), nil}
		rec.change = func(name string) {
			if name != at {
				return
			}
			if _, err := r.WriteFile(t.Context(), executor.File{Path: "change", SizeBytes: 0}, strings.NewReader("")); err != nil {
				t.Error(err)
			}
			awaittest.Until(t, "the change", func() bool {
				list, err := r.ListFiles(t.Context(), "", false)
				must(t, err)
				return slices.ContainsFunc(list, func(f executor.File) bool { return f.Path == "changed" })
			})
		}
		res, err := r.Run(t.Context(), start, RunInput{}, rec)
		if err != nil || describe(res) != "failed exit 0 collect/conflict" || len(res.Artifacts) != 3 {
			t.Fatalf("at %s: %v %s %+v %+v\n%s", at, err, describe(res), res.Failure, res.Artifacts, r.condition(t))
		}
		whole := strings.Repeat("a", size)
		want := map[string]string{"out/grows": whole, "out/shrinks": whole[:1000], "out/stays": whole}
		if at == "out/grows" {
			checkConflict(t, res.Failure, `"out/grows" grew while it was collected: the artifact has its first 8388608 bytes`)
		} else {
			checkConflict(t, res.Failure, `"out/shrinks" shrank while it was collected: the artifact has`)
			// How much was read before it shrank depends on the windows.
			want["out/shrinks"] = strings.TrimRight(rec.files[at], "\x00") + strings.Repeat("\x00", size-len(strings.TrimRight(rec.files[at], "\x00")))
			if n := len(strings.TrimRight(rec.files[at], "\x00")); n < 1000 || n >= size {
				t.Errorf("%d bytes of it", n)
			}
		}
		for name, text := range want {
			if rec.files[name] != text {
				t.Errorf("at %s: %s: %d bytes, want %d, or others", at, name, len(rec.files[name]), len(text))
			}
		}
		if err := r.RemoveFile(t.Context(), "changed"); err != nil {
			t.Error(err)
		}
	}
	r.wants(t, "1 + 1", "", "2")
}

func checkConflict(t *testing.T, f *executor.Failure, want ...string) {
	t.Helper()
	if f == nil || f.Code != executor.Conflict || f.Phase != executor.PhaseCollect {
		t.Errorf("failure %+v", f)
		return
	}
	for _, w := range want {
		if !strings.Contains(f.Message, w) {
			t.Errorf("%q says nothing of %q", f.Message, w)
		}
	}
}
