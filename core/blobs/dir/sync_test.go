package dirblobs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// What is durable is on disk with its name: the content before the name, and every folder that may be new.
func TestADurableBlobIsSyncedWithItsFolders(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		root := t.TempDir()
		b, err := Open(root)
		if err != nil {
			t.Fatal(err)
		}
		var synced []string
		b.sync = func(f *os.File) error {
			name, err := filepath.Rel(root, f.Name())
			if err != nil {
				return err
			}
			if strings.HasPrefix(name, tempDir) {
				name = "content"
				if _, err := os.Stat(b.file("a/b/c")); err == nil {
					t.Error("it has its name before its content is on disk")
				}
			}
			synced = append(synced, name)
			return f.Sync()
		}
		if _, err := b.Put(t.Context(), "a/b/c", strings.NewReader("x"), 0, durable); err != nil {
			t.Fatal(err)
		}
		want := []string{"content", "a/b", "a", "."}
		if !durable {
			want = nil
		}
		if !slices.Equal(synced, want) {
			t.Errorf("durable %t: synced %q, want %q", durable, synced, want)
		}
	}
}

func TestABlobThatCannotBeSyncedIsNotPromised(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	for _, at := range []string{tempDir, "a"} {
		root := t.TempDir()
		b, err := Open(root)
		if err != nil {
			t.Fatal(err)
		}
		b.sync = func(f *os.File) error {
			if strings.HasPrefix(f.Name(), filepath.Join(root, at)) {
				return broken
			}
			return f.Sync()
		}
		if _, err := b.Put(t.Context(), "a/b", strings.NewReader("x"), 0, true); !errors.Is(err, broken) {
			t.Errorf("below %s: Put says %v", at, err)
		}
		if left, err := os.ReadDir(filepath.Join(root, tempDir)); err != nil || len(left) > 0 {
			t.Errorf("below %s: left %v, error %v", at, left, err)
		}
	}
}

func TestWhatIsNoBlobIsNotListed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"UPPER" + suffix, "plain", suffix, tempDir + "/kept" + suffix} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for blob, err := range b.List(t.Context(), "") {
		t.Errorf("listed: %+v, error %v", blob, err)
	}
	for _, key := range []string{"UPPER", "", tempDir + "/kept"} {
		if _, err := b.Open(t.Context(), key); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("Open(%q): %v", key, err)
		}
	}
}
