package dirblobs_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestAFullDiskIsExhaustedAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, syscall.EPERM) {
		needtest.Need(t, false, needtest.Root, "a small tmpfs cannot be mounted")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	b := open(t, dir)
	if _, err := b.Put(t.Context(), "small", strings.NewReader("x"), 0, true); err != nil {
		t.Fatal(err)
	}
	_, err := b.Put(t.Context(), "large", io.LimitReader(neverEnding{}, 1<<30), 0, true)
	if executor.CodeOf(err) != executor.Exhausted || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a full disk gives %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "%tmp")); err != nil || len(entries) != 0 {
		t.Errorf("temporary files are left: %v, error %v", entries, err)
	}
	if _, err := b.Put(t.Context(), "small", bytes.NewReader(make([]byte, 500_000)), 0, true); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }
