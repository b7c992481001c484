package uvbackend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// TestWhatABuildWritesIsCountedWhileItRuns has a build that does not end by itself.
func TestWhatABuildWritesIsCountedWhileItRuns(t *testing.T) {
	b := openBackend(t, map[string]any{"environment_bytes": 8 << 20, "prepare_seconds": 60})
	held, err := tryLock(b.cache.lockPath("test"), unix.LOCK_EX) // without the lock, clean would remove temp
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	temp, err := os.MkdirTemp(b.cache.dir, ".tmp-test-")
	if err != nil {
		t.Fatal(err)
	}
	x, err := newBuilder(t.Context(), b).openBuildSlot(t.Context(), 0, temp, b.config.AllowBuilds)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if !x.close() {
			t.Error("processes are left in the build slot")
		}
	}()
	for _, dir := range []string{filepath.Join(temp, "tmp"), x.packages} {
		size := 9 << 20
		if dir == x.packages {
			size += cacheSlack
		}
		_, failure, err := x.run(t.Context(), false, nil, &boundedBuffer{}, "/bin/sh", "-c", fmt.Sprintf("for i in 1 2 3 4 5; do truncate -s %d %s/f$i; done; sleep 1000", size/5, dir))
		if err != nil || failure == nil || failure.Code != executor.Invalid || !strings.Contains(failure.Message, "backends.uv.environment_bytes (8388608)") {
			t.Errorf("%s: %+v, %v", filepath.Base(dir), failure, err)
		}
		for i := range 5 {
			_ = os.Remove(fmt.Sprintf("%s/f%d", dir, i+1))
		}
	}
}

func TestWhatWasInThePackageCacheBeforeIsNotCounted(t *testing.T) {
	t.Parallel()
	x := &buildSlot{builder: &builder{name: "uv", config: Config{EnvironmentBytes: 1000, EnvironmentFiles: 10}}, temp: t.TempDir(), packages: t.TempDir()}
	archive := filepath.Join(x.packages, "archive-v0")
	put := func(path string, size int64) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(archive, "old", "package", "file"), cacheSlack+2000)
	put(filepath.Join(x.packages, "wheels-v5", "old"), cacheSlack+2000)
	info, err := os.Stat(filepath.Join(x.packages, "wheels-v5", "old"))
	if err != nil {
		t.Fatal(err)
	}
	x.begun = changed(info).Add(time.Nanosecond)
	sees := func(what, want string) {
		t.Helper()
		f := x.look(t.Context())
		if (f == nil) != (want == "") || f != nil && !strings.Contains(f.Message, want) {
			t.Errorf("%s: %+v", what, f)
		}
	}
	sees("only files from before the build", "")
	eventuallyLater(t, x.begun, t.TempDir())
	put(filepath.Join(archive, "new", "package", "file"), cacheSlack+999)
	sees("a package of the right size", "")
	put(filepath.Join(archive, "new", "package", "file"), cacheSlack+1001)
	sees("a package that is too large", "environment_bytes (1000)")
	x.private = true
	sees("the same package outside of the build's folder, with a private cache", "")
	x.private = false
	put(filepath.Join(archive, "new", "package", "file"), 0)
	for i := range cacheSlackFiles + 10 {
		if err := os.Link(filepath.Join(archive, "new", "package", "file"), filepath.Join(archive, "new", "package", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	sees("a package with too many files", "environment_files (10)")
}

// eventuallyLater changes a file until its time stamp is not before since. The kernel's clock for time stamps has ticks.
func eventuallyLater(t *testing.T, since time.Time, path string) {
	t.Helper()
	eventually(t, "a later time stamp", func() bool {
		info, err := os.Stat(path)
		if err == nil && changed(info).Before(since) {
			err = os.Chmod(path, 0o700) //nolint:gosec // a folder
		}
		return err == nil && !changed(info).Before(since)
	})
}
