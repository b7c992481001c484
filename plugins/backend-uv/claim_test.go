package uvbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	// A process that is being started holds the open file until its exec.
	child, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
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
	dead.lock.Close() // as if the process had died
	if err := os.Mkdir(filepath.Join(work, "without-lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(mine.dir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the claimed folder: %v, %v, want one that the uids of slots may enter", info.Mode(), err)
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

func TestUIDsAreHandedOutOnceAndADeadUsersAreSwept(t *testing.T) {
	t.Parallel()
	locks, r := t.TempDir(), uids{70000, 70001}
	a, err := claimUID(locks, r)
	if err != nil || a.uid != 70000 {
		t.Fatalf("got %+v, %v", a, err)
	}
	b, err := claimUID(locks, r)
	if err != nil || b.uid != 70001 {
		t.Fatalf("got %+v, %v", b, err)
	}
	if _, err := claimUID(locks, r); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("a third got %v", err)
	}
	if _, err := claimUID(filepath.Join(locks, "none"), r); executor.CodeOf(err) == executor.Exhausted || err == nil {
		t.Errorf("without a folder of locks: %v", err)
	}
	a.release()
	b.lock.Close() // as if the holder had died
	for range 2 {
		if b, err = claimUID(locks, uids{70001, 70001}); err != nil || !b.dirty {
			t.Fatalf("after a death: %+v, %v", b, err)
		}
		b.undo()
	}
	if a, err = claimUID(locks, r); err != nil || a.dirty {
		t.Fatalf("after a release: %+v, %v", a, err)
	}
	a.undo()
	fails := true
	var ended []int
	end := func(uid int) error {
		ended = append(ended, uid)
		if fails {
			return errors.New("does not die")
		}
		return nil
	}
	other, err := claimUID(locks, uids{70002, 70002})
	if err != nil {
		t.Fatal(err)
	}
	other.lock.Close() // the uid is not in r, so another installation sweeps it
	for range 2 {      // a uid stays marked if end fails
		if err := sweepUIDs(locks, r, end); (err != nil) != fails {
			t.Errorf("the sweep: %v", err)
		}
		fails = false
	}
	if err := sweepUIDs(locks, r, end); err != nil || len(ended) != 2 || ended[0] != 70001 || ended[1] != 70001 {
		t.Errorf("swept %v, %v", ended, err)
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
	group, foreign := filepath.Join(dir, "group"), filepath.Join(dir, "foreign")
	for path, mode := range map[string]os.FileMode{group: 0o775, foreign: 0o755} {
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil { //nolint:gosec // what the test is about
			t.Fatal(err)
		}
	}
	paths := []string{open, group, file, link}
	if os.Geteuid() == 0 {
		if err := os.Lchown(foreign, 61299, 61299); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, foreign)
	}
	for _, path := range paths {
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

// A uid whose last holder was killed stays apart, but not over a reboot, which no process outlives.
func TestAMarkIsOfThisBoot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"12 " + boot() + "\n": true, "12 another-boot\n": false, "12\n": false, "": false} {
		if got := marked(strings.NewReader(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The folder of a process that runs is not taken for a leftover.
func TestAClaimIsHeldWhileItsProcessLives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	claim, err := claimWork(t.Context(), dir, "an installation")
	if err != nil {
		t.Fatal(err)
	}
	if dead, err := deadClaims(t.Context(), dir); err != nil || len(dead) != 0 {
		t.Errorf("of a living process: %d claims, %v", len(dead), err)
	}
	claim.lock.Close() // as the kernel does when the process ends
	dead, err := deadClaims(t.Context(), dir)
	if err != nil || len(dead) != 1 || dead[0].dir != claim.dir {
		t.Fatalf("of a dead process: %v, %v", dead, err)
	}
	dead[0].release()
}
