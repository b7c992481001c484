package sqlitestore

import (
	"path/filepath"
	"testing"
)

// SQLite's usual cache of 2 MB takes 5 MB of memory, because of how its allocator rounds.
func TestTheCacheOfPagesIsSmall(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing was written
	var pages int
	if err := s.db.QueryRowContext(t.Context(), "PRAGMA cache_size").Scan(&pages); err != nil || pages != 100 {
		t.Errorf("cache_size is %d, %v", pages, err)
	}
}
