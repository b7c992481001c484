//go:build linux

package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNoNameKeepsAFolderFromBeingEmptied(t *testing.T) {
	dir := t.TempDir()
	for n := range 20 {
		deep := filepath.Join(dir, fmt.Sprintf("d%d", n), strings.Repeat("d/", flattenDepth+1))
		// What a program could guess of a runner: its process number, and to count.
		inTheWay := filepath.Join(dir, fmt.Sprintf(".flat-%d-%d", os.Getpid(), n+1), "full")
		for _, name := range []string{deep, inTheWay} {
			if err := os.MkdirAll(name, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := Empty(int(root.Fd())); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
