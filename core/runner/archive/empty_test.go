//go:build linux

package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
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

func TestAFolderIsEmptiedAlthoughAProgramHasTakenRightsAway(t *testing.T) {
	needtest.NeedRoot(t)
	dir := writeFiles(t, map[string]string{"a/b/file": "", "c/file": ""})
	for _, name := range []string{"a/b/file", "a/b", "a", "c/file", "c", ""} {
		must(t, os.Chown(filepath.Join(dir, name), testUID, testUID))
	}
	for _, name := range []string{"a/b", "a", "c"} {
		must(t, os.Chmod(filepath.Join(dir, name), map[bool]os.FileMode{true: 0, false: 0o500}[name == "c"]))
	}
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	// A thread of the folders' owner for files.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(testUID); err != nil {
		t.Fatal(err)
	}
	err = Empty(int(root.Fd()))
	if _, resetErr := unix.SetfsuidRetUid(0); resetErr != nil {
		t.Fatal(resetErr)
	}
	if left, readErr := os.ReadDir(dir); err != nil || readErr != nil || len(left) > 0 {
		t.Errorf("%v is left, %v, %v", left, err, readErr)
	}
}
