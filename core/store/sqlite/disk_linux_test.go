package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// smallDisk mounts a tmpfs of size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); errors.Is(err, syscall.EPERM) {
		needtest.Need(t, false, needtest.Root, "a small tmpfs cannot be mounted")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestAFullDiskIsUnavailableAndNothingWorse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(smallDisk(t, "12m"), "store.db")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	lens := map[string]int{}
	for i := 0; err == nil; i++ {
		id := fmt.Sprintf("exe_%03d", i)
		r := executor.Record{Execution: executor.Execution{ID: id, Owner: "local", Status: executor.StatusQueued}}
		if _, _, err = s.Create(t.Context(), r); err != nil {
			break
		}
		lens[id] = 0
		for range 4 {
			if err = s.Append(t.Context(), id, executor.Event{Body: text(0, strings.Repeat("x", 200_000))}); err != nil {
				break
			}
			lens[id]++
		}
		if i > 1000 {
			t.Fatal("200 MB fit into 12")
		}
	}
	if executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("a full disk gives %v", err)
	}
	check := func(s *Store) {
		t.Helper()
		for id, n := range lens {
			r, err := s.Get(t.Context(), id)
			if err != nil || r.LastSeq != uint64(n) { //nolint:gosec // small
				t.Fatalf("%s has %d events, want %d, error %v", id, r.LastSeq, n, err)
			}
			seen := 0
			for _, err := range s.Events(t.Context(), id, 0) {
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				if seen++; seen == n {
					break
				}
			}
		}
	}
	for id, n := range lens {
		if n == 0 { // its log is empty: nothing to read, and a follower would wait
			delete(lens, id)
		}
	}
	check(s)
	// What a crash leaves on the full disk is read where there is room.
	check(restored(t, crashed(t, s)))
	// A Close that cannot move the log says so or keeps it.
	if err := s.Close(); err != nil && executor.CodeOf(err) != executor.Internal {
		t.Errorf("Close: %v", err)
	}
	check(restored(t, crashed(t, s)))
}

func TestARelaxedExecutionWaitsForRoomWithItsEnd(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "4m")
	s := mustOpen(t, filepath.Join(dir, "store.db"))
	createRelaxed(t, s, "before")
	emit(t, s, "before", done)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	createRelaxed(t, s, "x")
	emit(t, s, "x", text(0, "1"))
	var err error
	for i := 0; err == nil && i < 1000; i++ { // what SQLite's log has room for
		createRelaxed(t, s, fmt.Sprint("filler", i))
		err = s.Append(t.Context(), fmt.Sprint("filler", i), executor.Event{Body: text(0, strings.Repeat("x", maxInlineBytes))}, executor.Event{Body: done})
	}
	if executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("a full disk gives %v", err)
	}
	if err := s.Append(t.Context(), "x", executor.Event{Body: text(1, large)}, executor.Event{Body: done}); executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("an end on a full disk gives %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	emit(t, s, "x", text(1, "2"), done)
	if got, err := read(t, restored(t, crashed(t, s)), "x", 0); err != nil || got != "12" {
		t.Errorf("the log is %q, error %v", got, err)
	}
}
