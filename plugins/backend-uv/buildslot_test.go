package uvbackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
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
	put(filepath.Join(archive, "new", "package", "file"), cacheSlack+1000)
	sees("a package of the right size", "")
	put(filepath.Join(archive, "new", "package", "file"), cacheSlack+1001)
	sees("a package that is too large", "environment_bytes (1000)")
	x.private = true
	sees("the same package outside of the build's folder, with a private cache", "")
	x.private = false
	file := filepath.Join(archive, "new", "package", "file")
	put(file, 0)
	add := func(name string) {
		t.Helper()
		if err := os.Link(file, file+name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range cacheSlackFiles + 9 {
		add(fmt.Sprint(i))
	}
	sees("a package with as many files as it may have", "")
	add("one too many")
	sees("a package with too many files", "environment_files (10)")
}

// eventuallyLater changes a file until its time stamp is not before since. The kernel's clock for time stamps has ticks.
func eventuallyLater(t *testing.T, since time.Time, path string) {
	t.Helper()
	awaittest.Until(t, "a later time stamp", func() bool {
		info, err := os.Stat(path)
		if err == nil && changed(info).Before(since) {
			err = os.Chmod(path, 0o700) //nolint:gosec // a folder
		}
		return err == nil && !changed(info).Before(since)
	})
}

func TestABuildReachesWhatItsArgumentsAndItsEnvironmentName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x := &buildSlot{temp: filepath.Join(dir, "temp"), packages: filepath.Join(dir, "packages")}
	x.reach = []string{x.temp, x.packages}
	real := put(t, dir, "real", "links")
	named := filepath.Join(dir, "named")
	link(t, real, named)
	argv := []string{"/opt/uv", "--relative", filepath.Join(x.temp, "env")}
	env := map[string]string{"UV_FIND_LINKS": "https://index.example file://" + named + " relative", "HOME": filepath.Join(x.temp, "home")}
	for box, want := range map[bool][]string{
		true:  {real, "/opt/uv", named},
		false: {real, x.temp, x.packages, "/opt/uv", filepath.Join(x.temp, "env"), filepath.Join(x.temp, "home"), named},
	} {
		x.how.Box = box
		got := x.reaches(argv, env)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("in a box: %v, got %q, want %q", box, got, want)
		}
	}
}

// TestAFileOfTheIndexIsLentToABuildThatMayNotReadIt has a file for each variable. Only root can give a copy to another uid.
func TestAFileOfTheIndexIsLentToABuildThatMayNotReadIt(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"NETRC", "SSL_CERT_FILE", "SSL_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_CERT", "PIP_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}
	for _, uid := range []int{0, 61299} {
		if uid != 0 && os.Geteuid() != 0 {
			continue
		}
		x := &buildSlot{temp: filepath.Join(dir, fmt.Sprint(uid)), slot: &slot{}}
		if uid != 0 {
			x.slot.uid = &uidClaim{uid: uid}
		}
		if err := os.MkdirAll(filepath.Join(x.temp, "home"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			x.reach = nil
			env, err := x.lend([]string{name + "=" + file, "UV_INDEX_URL=https://index.example/a=b"})
			if err != nil || len(env) != 2 || env["UV_INDEX_URL"] != "https://index.example/a=b" {
				t.Errorf("%s: %q, %v", name, env, err)
			}
			if uid == 0 {
				if env[name] != file || !slices.Equal(x.reach, []string{file}) {
					t.Errorf("%s is %s for a build that may read the file, which reaches %q", name, env[name], x.reach)
				}
				continue
			}
			raw, err := os.ReadFile(env[name])
			info, _ := os.Stat(env[name])
			if err != nil || string(raw) != "secret" || !inFolder(env[name], x.temp) || ownerOf(info) != uid || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: the build got %s with %q, %v", name, env[name], raw, err)
			}
		}
	}
}

func TestWhatAUIDMayRead(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	put := func(folder string, closed, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, folder, fmt.Sprintf("file-%o", mode))
		script(t, path, "")
		if err := errors.Join(os.Chmod(path, mode), os.Chmod(filepath.Dir(path), closed)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, secret, inside := put("open", 0o755, 0o644), put("open", 0o755, 0o640), put("closed", 0o700, 0o644)
	linked := filepath.Join(dir, "open", "link")
	link(t, inside, linked)
	for _, c := range []struct {
		path           string
		onHost, inABox bool
	}{{open, true, true}, {secret, false, false}, {inside, false, true}, {linked, false, true}, {filepath.Join(dir, "none"), false, false}} {
		if host, box := (mechanisms{}).readable(c.path, 61299), (mechanisms{Box: true}).readable(c.path, 61299); host != c.onHost || box != c.inABox {
			t.Errorf("%s can be read: %v, and in a box %v, want %v and %v", c.path, host, box, c.onHost, c.inABox)
		}
	}
}

func TestEachBuildHasAPackageCacheOfItsOwn(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<20)
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("enough"))
	seen := map[string]*lockFile{}
	for range parallelBuilds {
		dir, held, err := c.takePackages(ended) // no build waits
		if err != nil || seen[dir] != nil || !isFolder(dir) {
			t.Fatalf("got %s, %v, and had %d", dir, err, len(seen))
		}
		seen[dir] = held
	}
	if dir, _, err := c.takePackages(ended); err == nil {
		t.Errorf("one build more got %s", dir)
	}
	seen[c.packages(2)].Close()
	dir, held, err := c.takePackages(ended)
	if err != nil || dir != c.packages(2) {
		t.Errorf("got %s, %v, want the package cache that was given back", dir, err)
	}
	seen[dir] = held
	for _, held := range seen {
		held.Close()
	}
}
