//go:build linux

package archive

import (
	"os"
	"testing"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testUID is a uid that no other process of tests has.
var testUID = 1<<20 + os.Getpid()%100_000*4096

// workRoot makes a folder that other uids can pass through.
func workRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "archive-test-*")
	if err != nil {
		tb.Fatal(err)
	}
	//nolint:gosec // other uids pass through it
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}
