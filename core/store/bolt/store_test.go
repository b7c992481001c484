package boltstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/storetest"
	boltstore "github.com/python-executor/python-executor/core/store/bolt"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashChild()
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStoreKeepsTheLaw(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) executor.Store {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "store.db"))
	})
}

func TestStoreKeepsTheLawOverRestarts(t *testing.T) {
	t.Parallel()
	storetest.RunDurable(t, reopened)
}

// It measures the memory of the process, and so runs alone.
func TestStoreKeepsTheLawOfMemory(t *testing.T) { //nolint:paralleltest // see above
	storetest.RunLarge(t, reopened)
}

func reopened(t *testing.T) func() (executor.Store, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "folder", "store.db")
	return func() (executor.Store, error) {
		s, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

func TestASecondOpeningNamesTheFileAndItsHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, path)
	_, err := boltstore.Open(path, boltstore.Options{})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("the second opening gave %v", err)
	}
}

func TestAFileThatIsNoStoreIsAnErrorWithItsName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := boltstore.Open(path, boltstore.Options{})
	if executor.CodeOf(err) != executor.Internal || !strings.Contains(err.Error(), path) {
		t.Errorf("opening gave %v", err)
	}
}

func TestNothingIsLeftBesideTheFileAfterClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store.db"))
	if _, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, error %v", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "store.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, error %v", info.Mode(), err)
	}
}
