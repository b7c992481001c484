package uvbackend

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestAWorkspaceIsKeptWhenItComesAgain(t *testing.T) {
	t.Parallel()
	var known trees
	job := func(owner, digest string, change func(*executor.Job)) executor.Job {
		j := executor.Job{Owner: owner, Workspace: &executor.Source{Digest: digest, Replayable: true, SizeBytes: 100}, Limits: executor.Limits{DiskBytes: 1 << 20}}
		if change != nil {
			change(&j)
		}
		return j
	}
	first := known.again(job("me", "d", nil))
	name := known.again(job("me", "d", nil))
	if first != "" || name == "" || known.again(job("me", "d", nil)) != name {
		t.Errorf("%q, then %q", first, name)
	}
	for what, j := range map[string]executor.Job{
		"another owner":     job("you", "d", nil),
		"another workspace": job("me", "e", nil),
		"another limit":     job("me", "d", func(j *executor.Job) { j.Limits.DiskBytes++ }),
		"a stream":          job("me", "d", func(j *executor.Job) { j.Workspace.Replayable = false }),
		"no digest":         job("me", "", nil),
		"a large one":       job("me", "d", func(j *executor.Job) { j.Workspace.SizeBytes = maxTree + 1 }),
		"none":              job("me", "d", func(j *executor.Job) { j.Workspace = nil }),
	} {
		if got := known.again(j); got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
	for i := range recentTrees - 4 { // two others came after the last one
		known.again(job("me", fmt.Sprint("some", i), nil))
	}
	known.again(job("me", "d", nil))
	for i := range recentTrees - 1 {
		known.again(job("me", fmt.Sprint("more", i), nil))
	}
	if known.again(job("me", "d", nil)) != name {
		t.Error("a workspace that came again lately was forgotten")
	}
	for i := range 2 * recentTrees {
		known.again(job("me", fmt.Sprint(i), nil))
	}
	if len(known.recent) != recentTrees || known.again(job("me", "d", nil)) != "" {
		t.Errorf("%d are remembered", len(known.recent))
	}
}

// TestAWorkspaceIsReadOncePerSlot runs a program that changes its files. The Workspace is read at the first time, and then once for each
// slot. keptSlots wait.
func TestAWorkspaceIsReadOncePerSlot(t *testing.T) {
	needtest.NeedRoot(t)
	b := openBoxed(t, nil)
	const code = `print(open("main.py").read().count("\n"))
open("main.py", "a").write("\n")`
	var tree bytes.Buffer
	w := tar.NewWriter(&tree)
	if err := w.WriteHeader(&tar.Header{Name: "main.py", Mode: 0o644, Size: int64(len(code))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, code); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int64
	const runs = 8
	for range runs {
		j, log := job(executor.Spec{}), &journal{}
		j.Workspace = &executor.Source{Digest: "sha256:00", Replayable: true, SizeBytes: int64(tree.Len()), Open: func() (io.ReadCloser, error) {
			opened.Add(1)
			return io.NopCloser(bytes.NewReader(tree.Bytes())), nil
		}}
		if result, err := b.Run(t.Context(), j, log); err != nil || log.text(executor.Stdout) != "1\n" {
			t.Fatalf("%v, %+v, %s%s", err, result, log.text(executor.Stdout), log.text(executor.Stderr))
		}
	}
	if n := opened.Load(); n < 2 || n > 1+keptSlots {
		t.Errorf("the workspace was read %d times in %d runs", n, runs)
	}
}
