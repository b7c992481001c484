package uvbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

func TestALockHasOneHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.lock")
	first, err := tryLock(path, unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path, unix.LOCK_SH); !errors.Is(err, errHeld) {
		t.Errorf("a second holder got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := lock(ctx, path, unix.LOCK_EX); !errors.Is(err, cause) {
		t.Errorf("waiting ended with %v", err)
	}
	first.Close()
	shared, err := tryLock(path, unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	also, err := tryLock(path, unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	defer also.Close()
}

func TestOnlyWhatNobodyHoldsIsSwept(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	mine, err := claimWork(t.Context(), work, "mine")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := claimWork(t.Context(), work, "theirs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as if its process had died
	if err := os.Mkdir(filepath.Join(work, "without-lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	var swept []string
	end := func(name, dir string) { swept = append(swept, name) }
	if err := sweepWork(t.Context(), work, end, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if len(swept) != 2 {
		t.Errorf("swept %q", swept)
	}
	entries, _ := os.ReadDir(work)
	for _, e := range entries {
		if n := e.Name(); n != ".lock" && n != mine.name && n != mine.name+".lock" {
			t.Errorf("%s is left", n)
		}
	}
	mine.release()
	if _, err := os.Stat(mine.dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("a released folder is still there")
	}
}

func TestUIDsAreHandedOutOnceAndADeadUsersAreDirty(t *testing.T) {
	t.Parallel()
	locks, r := t.TempDir(), uids{70000, 70001}
	a, dirty, err := claimUID(locks, r)
	if err != nil || dirty || a.uid != 70000 {
		t.Fatalf("got %+v, %v, %v", a, dirty, err)
	}
	b, dirty, err := claimUID(locks, r)
	if err != nil || dirty || b.uid != 70001 {
		t.Fatalf("got %+v, %v, %v", b, dirty, err)
	}
	if _, _, err := claimUID(locks, r); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("a third got %v", err)
	}
	a.release()
	b.lock.Close() // died
	var ended []int
	if err := sweepUIDs(locks, r, func(uid int) error { ended = append(ended, uid); return nil }); err != nil || len(ended) != 1 || ended[0] != 70001 {
		t.Errorf("swept %v, %v", ended, err)
	}
	if c, dirty, err := claimUID(locks, uids{70001, 70001}); err != nil || dirty {
		t.Errorf("after the sweep: %+v, %v, %v", c, dirty, err)
	} else {
		c.lock.Close()
	}
	if c, dirty, err := claimUID(locks, uids{70001, 70001}); err != nil || !dirty {
		t.Errorf("after a death: %+v, %v, %v", c, dirty, err)
	} else {
		c.release()
	}
}

func TestAFolderThatOthersCouldChangeIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open, file := filepath.Join(dir, "open"), filepath.Join(dir, "file")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, file, link} {
		if err := ensureDir(path, 0o755); err == nil {
			t.Errorf("%s was accepted", path)
		}
	}
	for range 2 {
		if err := ensureDir(filepath.Join(dir, "a", "b"), 0o711); err != nil {
			t.Error(err)
		}
	}
}
