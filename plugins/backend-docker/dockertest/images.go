package dockertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"
)

// label marks an imported image with the version of the script that made it.
const label = "python-executor.test-images"

// Python returns the name of an image with Debian, Python 3.11, pip, Node and CA certificates.
func Python(t testing.TB) string { return imported(t, "python") }

// Bare returns the name of an image that holds Python 3.11 and its libraries, and neither a shell nor tar.
func Bare(t testing.TB) string { return imported(t, "bare") }

// tars makes or finds the folder of the images' tars, once.
var tars = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../../tools/test-images.sh")
	if _, err := os.Stat(script); err != nil { // built with -trimpath
		if script, err = above("tools/test-images.sh"); err != nil {
			return "", err
		}
	}
	var said bytes.Buffer
	cmd := exec.Command(script)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", script, err, last(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
})

// above finds a file of the repository from the current folder upwards.
func above(path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			return filepath.Join(dir, path), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no folder above", path)
		}
	}
}

func imported(t testing.TB, tag string) string {
	t.Helper()
	host := Host(t)
	name := "pyexec-test:" + tag
	if err := importOnce(t.Context(), host, name, tag); err != nil {
		missing(t, "docker", fmt.Errorf("no image %s: %w", name, err))
	}
	return name
}

// importOnce imports an image unless the daemon has it. Test processes take turns: the same daemon may serve several.
func importOnce(ctx context.Context, host, name, tag string) error {
	cli, done, err := dial(host)
	if err != nil {
		return err
	}
	defer done()
	there := func(version string) (bool, error) {
		found, err := cli.ImageInspect(ctx, name)
		if errdefs.IsNotFound(err) {
			return false, nil
		}
		if err != nil || version == "" || found.Config == nil {
			return err == nil, err
		}
		has, labelled := found.Config.Labels[label]
		return !labelled || has == version, nil // one without our label is somebody's choice
	}
	dir, err := tars()
	if err != nil {
		if ok, _ := there(""); ok {
			return nil // it cannot be made here, and need not be
		}
		return err
	}
	version := filepath.Base(dir)
	if ok, err := there(version); ok || err != nil {
		return err
	}
	turn, err := os.OpenFile(filepath.Join(dir, ".import.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if ok, err := there(version); ok || err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(dir, tag+".tar"))
	if err != nil {
		return err
	}
	defer file.Close()
	answer, err := cli.ImageImport(ctx, image.ImportSource{Source: file, SourceName: "-"}, name, image.ImportOptions{
		Changes: []string{"LABEL " + label + "=" + version, "ENV LANG=C.UTF-8"},
	})
	if err != nil {
		return err
	}
	defer answer.Close()
	said, err := io.ReadAll(answer)
	if err == nil && bytes.Contains(said, []byte(`"error"`)) {
		err = fmt.Errorf("import: %s", said)
	}
	return err
}

// last is the end of what a command said.
func last(said string) string {
	const most = 600
	said = strings.TrimSpace(said)
	if len(said) > most {
		said = "…" + said[len(said)-most:]
	}
	return said
}
