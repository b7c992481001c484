package dockertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// images returns the names of the images of p, and how many it has in all.
func images(t *testing.T, p *private) string {
	t.Helper()
	out, err := exec.Command("docker", "--host", p.host(), "image", "ls", "--all", "--format", "{{.Repository}}:{{.Tag}}").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func docker(t *testing.T, p *private, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", append([]string{"--host", p.host()}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("docker %v: %v: %s", args, err, out)
	}
}

// The images of the next daemon are those of the one before, and nothing else is. One that was killed leaves nothing.
func TestTheTestImagesStayInTheCache(t *testing.T) {
	needtest.Long(t, startsDaemons)
	needRoot(t)
	root := t.TempDir()
	tars, err := tars()
	if err != nil {
		t.Skip(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "python-executor"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tars, filepath.Join(root, "python-executor", filepath.Base(tars))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", root)

	first := startPrivate(t)
	if first.cache == nil {
		t.Fatal("the cache is free, and not taken")
	}
	if other := startPrivate(t); other.cache != nil {
		t.Error("two daemons have the same data")
	}
	name, err := Import(t.Context(), first.host(), "bare")
	if err != nil {
		t.Fatal(err)
	}
	docker(t, first, "tag", name, "more:1")
	docker(t, first, "create", "--volume", "kept:/kept", "--name", "left", name, "/usr/bin/python3")
	docker(t, first, "commit", "left", "more:2")
	docker(t, first, "network", "create", "left")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}

	second, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.stop() }) // no daemon answers
	if got := images(t, second); got != name+"\n" {
		t.Errorf("the images are %q, want %s alone", got, name)
	}
	for _, kind := range []string{"container", "volume"} {
		if out, err := exec.Command("docker", "--host", second.host(), kind, "ls", "-q").Output(); err != nil || len(out) > 0 {
			t.Errorf("%s: %q, %v", kind, out, err)
		}
	}
	docker(t, second, "network", "create", "left") // it was removed
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-second.done
	if err := second.stop(); err == nil {
		t.Error("a daemon that was killed counts as ended well")
	}
	if third := startPrivate(t); third.cache == nil || images(t, third) != "" {
		t.Errorf("data of a daemon that was killed is used: %q", images(t, third))
	}
}
