package sqlitestore_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
)

// crashEnv names the store's file to a child of this test binary, which then writes until it is killed.
const crashEnv = "PYEXEC_TEST_SQLITESTORE_CRASH"

// crashChild writes executions and says on stdout what was accepted, a line for each call that returned.
func crashChild() {
	s, err := sqlitestore.Open(os.Getenv(crashEnv), sqlitestore.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	prefix := os.Getenv(crashEnv + "_PREFIX")
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := crashLife(s, fmt.Sprintf("exe_%s_%d_%06d", prefix, w, i), i); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(4)
				}
			}
		})
	}
	wg.Wait()
}

func crashLife(s *sqlitestore.Store, id string, i int) error {
	ctx := context.Background()
	r := executor.Record{Execution: executor.Execution{ID: id, Owner: "local", Status: executor.StatusQueued}}
	r.Spec.Durable = i%2 == 0
	r.Spec.IdempotencyKey = id
	if i%3 == 0 {
		if err := crashSession(s, id); err != nil {
			return err
		}
	}
	if _, _, err := s.Create(ctx, r); err != nil {
		return err
	}
	fmt.Printf("created %s 0\n", id)
	if _, err := s.Update(ctx, id, func(u *executor.Record) { u.Attempts = 1 }); err != nil {
		return err
	}
	fmt.Printf("updated %s 0\n", id)
	for seq := 1; seq <= 12; seq++ {
		if err := s.Append(ctx, id, executor.Event{Body: out(int64(seq-1)*6000, 6000)}); err != nil {
			return err
		}
		fmt.Printf("appended %s %d\n", id, seq)
	}
	if i%7 == 3 {
		return nil // one that never ends
	}
	if err := s.Append(ctx, id, executor.Event{Body: executor.Progress{}}, executor.Event{Body: finished}); err != nil {
		return err
	}
	fmt.Printf("finished %s 14\n", id)
	if i%5 == 4 {
		if err := s.Delete(ctx, id); err != nil {
			return err
		}
		fmt.Printf("deleted %s 0\n", id)
	}
	return nil
}

// crashSession makes a session beside an execution: some are updated, some of those deleted.
func crashSession(s *sqlitestore.Store, execution string) error {
	ctx, id := context.Background(), "ctx-"+execution
	r := executor.SessionRecord{Session: executor.Session{ID: id, Owner: "local", Status: executor.SessionActive}, Handle: []byte(id)}
	if err := s.CreateSession(ctx, r); err != nil {
		return err
	}
	fmt.Printf("created %s 0\n", id)
	if len(id)%2 == 0 || strings.HasSuffix(id, "6") {
		if _, err := s.UpdateSession(ctx, id, func(u *executor.SessionRecord) { u.Waiting = 7 }); err != nil {
			return err
		}
		fmt.Printf("updated %s 0\n", id)
	}
	if strings.HasSuffix(id, "9") {
		if err := s.DeleteSession(ctx, id); err != nil {
			return err
		}
		fmt.Printf("deleted %s 0\n", id)
	}
	return nil
}

// crashVerifySession checks that a session is what was said of it, or one step further.
func crashVerifySession(t *testing.T, s *sqlitestore.Store, id string, a accepted) {
	t.Helper()
	r, err := s.GetSessionRecord(t.Context(), id)
	switch {
	case executor.CodeOf(err) == executor.NotFound && (a.deleted || strings.HasSuffix(id, "9")):
	case err != nil || a.deleted:
		t.Errorf("session %s: accepted %+v, there is %+v, %v", id, a, r, err)
	case string(r.Handle) != id || a.updated && r.Waiting != 7:
		t.Errorf("session %s: accepted %+v, there is %+v", id, a, r)
	}
}

// accepted is what the child said of one execution or session.
type accepted struct {
	updated, finished, deleted bool
	seq                        uint64
}

// TestKillLosesNothingThatWasAccepted kills a writing process at random points, several times over one file.
func TestKillLosesNothingThatWasAccepted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	all := map[string]*accepted{}
	for round := range 8 {
		// From "while it opens the file" to "after several checkpoints".
		lines := rand.IntN([]int{20, 200, 2000, 6000}[round%4]) //nolint:gosec // a test's dice
		crashRound(t, path, fmt.Sprintf("%02d", round), lines, all)
		crashVerify(t, path, all)
	}
}

func crashRound(t *testing.T, path, prefix string, lines int, all map[string]*accepted) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very binary
	cmd.Env = append(os.Environ(), crashEnv+"="+path, crashEnv+"_PREFIX="+prefix)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(stdout)
	for n := 0; scanner.Scan(); n++ {
		if n == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		// What was said before the kill arrived counts too.
		var what, id string
		var seq uint64
		if _, err := fmt.Sscan(scanner.Text(), &what, &id, &seq); err != nil {
			continue // the line that the kill cut
		}
		a := all[id]
		if a == nil {
			a = &accepted{}
			all[id] = a
		}
		a.seq = max(a.seq, seq)
		a.updated = a.updated || what == "updated"
		a.finished = a.finished || what == "finished"
		a.deleted = a.deleted || what == "deleted"
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v", err)
	}
}

func crashVerify(t *testing.T, path string, all map[string]*accepted) {
	t.Helper()
	s, err := sqlitestore.Open(path, sqlitestore.Options{})
	if err != nil {
		t.Fatalf("opening after the kill: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	listed := map[string]bool{}
	for f := (executor.Filter{Limit: 500}); ; {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			listed[r.ID] = true
			crashVerifyLog(t, s, r)
		}
		f.After = page[len(page)-1].ID
	}
	for id, a := range all {
		if strings.HasPrefix(id, "ctx-") {
			crashVerifySession(t, s, id, *a)
			continue
		}
		r, err := s.Get(t.Context(), id)
		if a.deleted {
			if executor.CodeOf(err) != executor.Purged || listed[id] {
				t.Errorf("%s was deleted, Get gives %v, listed %t", id, err, listed[id])
			}
			continue
		}
		if executor.CodeOf(err) == executor.Purged { // the Delete was under way
			continue
		}
		if err != nil || !listed[id] {
			t.Errorf("%s was accepted, Get gives %v, listed %t", id, err, listed[id])
			continue
		}
		if r.LastSeq < a.seq || (a.updated && r.Attempts != 1) || (a.finished && !r.Status.Terminal()) {
			t.Errorf("%s: accepted %+v, there is %+v", id, *a, r.Execution)
		}
		if a.finished {
			err := s.Append(t.Context(), id, executor.Event{Body: executor.Progress{}})
			if executor.CodeOf(err) != executor.Conflict {
				t.Errorf("%s: Append after Finished gives %v", id, err)
			}
		}
	}
}

// crashVerifyLog checks that a log has no gap, at most one Finished, nothing behind it, and folds to its head.
func crashVerifyLog(t *testing.T, s *sqlitestore.Store, r executor.Record) {
	t.Helper()
	if r.LastSeq == 0 {
		return
	}
	want := executor.Record{}
	for e, err := range s.Events(t.Context(), r.ID, 0) {
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		if e.Seq != want.LastSeq+1 {
			t.Fatalf("%s: event %d after %d", r.ID, e.Seq, want.LastSeq)
		}
		if want.Status.Terminal() {
			t.Fatalf("%s: event %d after Finished", r.ID, e.Seq)
		}
		want.Apply(e)
		if e.Seq == r.LastSeq {
			break
		}
	}
	if want.LastSeq != r.LastSeq || want.StdoutBytes != r.StdoutBytes || want.Status.Terminal() != r.Status.Terminal() {
		t.Errorf("%s: the head is %+v, the log folds to %+v", r.ID, r.Execution, want.Execution)
	}
}
