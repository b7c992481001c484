package scripts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestACancelBeforeTheStartRunsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ran := filepath.Join(p.root, "ran")
	b, j := p.cancelled("touch " + ran)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	sink := newJournal()
	res, err := b.Run(ctx, j, sink)
	if err != nil || res.Status != executor.StatusKilled {
		t.Errorf("it ended as %+v, error %v, want killed", res, err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the script ran")
	}
	select {
	case <-sink.begun:
		t.Error("it has started")
	default:
	}
}

// cancelled is a backend with one script, and a job for it.
func (p *place) cancelled(text string) (*Backend, executor.Job) {
	p.t.Helper()
	path := p.script("one.sh", text)
	j := job(path)
	j.ID += "-" + filepath.Base(p.t.Name())
	return p.backend(), j
}

func TestAScriptGetsItsStdinAndItsRealPathAndLeavesNoWorkFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	real := p.script("real.sh", `echo "$0"; cat; head -c 30 /dev/zero | tr '\0' x >&2`)
	link := filepath.Join(p.root, "link.sh")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	p.policy.Allowed, p.policy.MaxLineBytes = []string{link}, 2000
	b := p.backend()
	j := job(link)
	j.ID += "-stdin"
	j.Stdin = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("from stdin")), nil }}
	sink := newJournal()
	if res, err := b.Run(t.Context(), j, sink); err != nil || res.Status != executor.StatusSucceeded || res.StderrTruncated {
		t.Fatalf("it ended as %+v, error %v", res, err)
	}
	// What was checked is what runs: a link may lead elsewhere a moment later.
	if want := real + "\nfrom stdin"; sink.out[executor.Stdout] != want {
		t.Errorf("stdout is %q, want %q", sink.out[executor.Stdout], want)
	}
	if left, err := os.ReadDir(b.options.WorkDir); err != nil || len(left) > 0 {
		t.Errorf("work folders are left: %v, error %v", left, err)
	}
}

func TestALineThatIsTooLongIsSaidOfItsStream(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.policy.MaxLineBytes = 3
	b, j := p.cancelled("echo abc; echo abcd >&2")
	res, err := b.Run(t.Context(), j, newJournal())
	if err != nil || res.StdoutTruncated || !res.StderrTruncated {
		t.Errorf("truncated: stdout %t, stderr %t, error %v; want only stderr", res.StdoutTruncated, res.StderrTruncated, err)
	}
}

func TestOneIdRunsOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b, j := p.cancelled("sleep 600")
	sink, ended := newJournal(), make(chan executor.Result, 1)
	go func() {
		res, _ := b.Run(t.Context(), j, sink)
		ended <- res
	}()
	<-sink.begun
	if _, err := b.Run(t.Context(), j, newJournal()); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("a second run of one id: %v", err)
	}
	// Close ends what runs, and waits for it.
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	select {
	case res := <-ended:
		if res.Status != executor.StatusKilled {
			t.Errorf("Close ended it as %s", res.Status)
		}
	default:
		// Run has left the backend; its caller may not have the Result yet.
		if res := <-ended; res.Status != executor.StatusKilled {
			t.Errorf("Close ended it as %s", res.Status)
		}
	}
	if _, err := b.Run(t.Context(), job(p.policy.Allowed[0]), newJournal()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a run after Close: %v", err)
	}
}

func TestTheFilesOfRunsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := openAudit(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keptRuns {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%sexe_%05d.log", runPrefix, i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := a.begin("exe_99999")
	if err != nil {
		t.Fatal(err)
	}
	log.write(executor.Stdout, []byte("a"))
	log.write(executor.Stdout, []byte("b"))
	log.write(executor.Stderr, []byte("c"))
	for range 3 {
		log.write(executor.Stderr, []byte(strings.Repeat("x", maxRunLog/2)))
	}
	log.write(executor.Stdout, []byte("too late"))
	name, err := log.end()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if !strings.HasPrefix(text, "--- stdout ---\nab--- stderr ---\ncxxx") || !strings.HasSuffix(text, "x\n--- truncated ---\n") {
		t.Errorf("the file begins with %.50q and ends with %q", text, text[len(text)-30:])
	}
	if len(text) > maxRunLog+len("\n--- truncated ---\n") {
		t.Errorf("the file has %d bytes, the bound is %d", len(text), maxRunLog)
	}
	runs, err := filepath.Glob(filepath.Join(dir, runPrefix+"*"))
	if err != nil || len(runs) != keptRuns || strings.HasSuffix(runs[0], "_00000.log") {
		t.Errorf("%d files of runs, the oldest %s, error %v; want %d without the oldest", len(runs), runs[0], err, keptRuns)
	}
	// An audit log that is empty takes a line of any size, and is not rotated for it.
	if err := a.write(auditLine{Path: strings.Repeat("p", maxAuditBytes)}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, auditName+".1")); err == nil {
		t.Error("an empty audit log was rotated")
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
}

func TestARunnerThatCannotStartIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, j := p.cancelled("true")
	b, err := New(Options{Policy: p.policy, WorkDir: t.TempDir(), Runner: func() (string, []string, error) { return "/bin/false", []string{"false"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Run(t.Context(), j, newJournal()); executor.CodeOf(err) != executor.Unavailable || strings.Contains(err.Error(), "hello within") {
		t.Errorf("a runner that ends before it has spoken: %v, want unavailable without a wait for it", err)
	}
}
