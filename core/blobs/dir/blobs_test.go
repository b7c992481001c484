package dirblobs_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dirblobs "github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, path string) *dirblobs.Blobs {
	t.Helper()
	b, err := dirblobs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBlobsKeepTheLaw(t *testing.T) {
	t.Parallel()
	storetest.RunBlobs(t, func(t *testing.T) executor.Blobs {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "blobs"))
	})
}

func TestLeftoversOfACrashAreRemovedButNotWhatIsBeingWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "%tmp", "123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, feed := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := b.Put(t.Context(), "live", content, 0, false)
		done <- err
	}()
	if _, err := feed.Write([]byte("half ")); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	entries, err := os.ReadDir(filepath.Join(dir, "%tmp"))
	if err != nil || len(entries) != 1 || entries[0].Name() == "123" {
		t.Errorf("temporary files after opening: %v, error %v", entries, err)
	}
	if _, err := feed.Write([]byte("whole")); err != nil {
		t.Fatal(err)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "live%"))
	if err != nil || string(data) != "half whole" {
		t.Errorf("the blob holds %q, error %v", data, err)
	}
}

func TestNobodyElseMayReadWhatIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	b := open(t, dir)
	if _, err := b.Put(t.Context(), "a/b", strings.NewReader("x"), 0, true); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeleteLeavesNoEmptyFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	for _, key := range []string{"a/b/c", "a/d"} {
		if _, err := b.Put(t.Context(), key, strings.NewReader("x"), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a/b/c", "a/d"} {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, error %v", entries, err)
	}
}

func TestPutsAndDeletesInOneFolderDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	done := make(chan error)
	for _, key := range []string{"a/b/one", "a/b/two"} {
		go func() {
			for range 300 {
				if _, err := b.Put(t.Context(), key, strings.NewReader("x"), 0, false); err != nil {
					done <- err
					return
				}
				if err := b.Delete(t.Context(), key); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestABlobIsAFile: a program on this host may read a blob by its path, without a copy.
func TestABlobIsAFile(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	if _, err := b.Put(t.Context(), "a/b", strings.NewReader("text"), 0, false); err != nil {
		t.Fatal(err)
	}
	s, err := b.Open(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(s.Path); err != nil || string(data) != "text" || !s.Replayable {
		t.Errorf("%q holds %q, error %v, replayable %t", s.Path, data, err, s.Replayable)
	}
}

func TestTheLongestKey(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	segment := strings.Repeat("s", 200)
	for key, want := range map[string]executor.Code{
		segment:       "",
		segment + "s": executor.Invalid,
		strings.Repeat(segment[:63]+"/", 15) + segment[:64]: "",
		strings.Repeat(segment[:63]+"/", 15) + segment[:65]: executor.Invalid,
	} {
		if _, err := b.Put(t.Context(), key, strings.NewReader("x"), 0, false); executor.CodeOf(err) != want {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
}
