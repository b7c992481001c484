package sqlitestore_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/storetest"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashChild()
	}
	leaktest.Main(m)
}

func open(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(path, sqlitestore.Options{})
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

func TestStoreKeepsTheLawWithRelaxedRecords(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) executor.Store {
		t.Helper()
		return relaxing{open(t, filepath.Join(t.TempDir(), "store.db"))}
	})
	storetest.RunDurable(t, func(t *testing.T) func() (executor.Store, error) {
		t.Helper()
		again := reopened(t)
		return func() (executor.Store, error) {
			s, err := again()
			if err != nil {
				return nil, err
			}
			return relaxing{s}, nil
		}
	})
}

// relaxing makes every Record Relaxed, and hides that.
type relaxing struct{ executor.Store }

func (s relaxing) Create(ctx context.Context, r executor.Record, events ...executor.Event) (executor.Record, bool, error) {
	r.Relaxed = true
	r, created, err := s.Store.Create(ctx, r, events...)
	r.Relaxed = false
	return r, created, err
}

func (s relaxing) Get(ctx context.Context, id string) (executor.Record, error) {
	r, err := s.Store.Get(ctx, id)
	r.Relaxed = false
	return r, err
}

func (s relaxing) Update(ctx context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	r, err := s.Store.Update(ctx, id, func(r *executor.Record) {
		r.Relaxed = false // it stays
		change(r)
	})
	r.Relaxed = false
	return r, err
}

func (s relaxing) ByKey(ctx context.Context, owner, key string) (executor.Record, error) {
	r, err := s.Store.ByKey(ctx, owner, key)
	r.Relaxed = false
	return r, err
}

func (s relaxing) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	page, err := s.Store.List(ctx, f)
	for i := range page {
		page[i].Relaxed = false
	}
	return page, err
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
		s, err := sqlitestore.Open(path, sqlitestore.Options{})
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
	_, err := sqlitestore.Open(path, sqlitestore.Options{})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("the second opening gave %v", err)
	}
}

func TestAFileThatIsNoStoreIsAnErrorWithItsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	content := []byte(strings.Repeat("not a database\n", 1000))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitestore.Open(path, sqlitestore.Options{})
	if executor.CodeOf(err) != executor.Internal || !strings.Contains(err.Error(), "mv "+path+"* "+dir+"/old/") {
		t.Errorf("opening gave %v", err)
	}
	kept, err := os.ReadFile(path)
	if left, _ := os.ReadDir(dir); err != nil || !bytes.Equal(kept, content) || len(left) != 1 {
		t.Errorf("the file was changed, error %v, or something was left: %v", err, left)
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

// The database is not asked for an id beyond all others: which that is must be known after a restart too.
func TestAnIDThatExistsIsAConflictAfterARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	for _, id := range []string{"exe_1", "exe_3"} {
		if _, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: id, Owner: "ann"}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), id, executor.Event{Body: executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	for id, want := range map[string]executor.Code{"exe_1": executor.Conflict, "exe_2": "", "exe_3": executor.Conflict, "exe_4": ""} {
		for _, relaxed := range []bool{false, true} {
			if want == "" && relaxed {
				want = executor.Conflict // it was created just now
			}
			_, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: id, Owner: "ben"}, Relaxed: relaxed})
			if executor.CodeOf(err) != want {
				t.Errorf("Create of %s, relaxed %t: %v, want code %q", id, relaxed, err, want)
			}
		}
	}
	if found, err := s.Get(t.Context(), "exe_3"); err != nil || found.Owner != "ann" {
		t.Errorf("%+v, %v", found, err)
	}
}
