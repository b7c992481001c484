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

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// label is the label of an imported image. Its value is the version of the script that made the image.
const label = "python-executor.test-images"

// tags are those of the test images.
var tags = []string{"python", "bare"}

// nameOf returns the name of a test image.
func nameOf(tag string) string { return "pyexec-test:" + tag }

// Python returns the name of an image with Debian, Python 3.11, pip, Node and CA certificates.
func Python(t testing.TB) string { return imported(t, "python") }

// Bare returns the name of an image that holds Python 3.11 and its libraries, and neither a shell nor tar.
func Bare(t testing.TB) string { return imported(t, "bare") }

// tars returns the folder with the image files. It makes them on the first call.
var tars = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../../tools/test-images.sh")
	if _, err := os.Stat(script); err != nil { // the file's path is not known with -trimpath
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

// above finds a file of the repository in the current folder or one above it.
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
			return "", fmt.Errorf("%s is not in a folder above", path)
		}
	}
}

// Import makes sure that host's daemon has a test image ("python" or "bare") and returns its name.
func Import(ctx context.Context, host, tag string) (string, error) {
	name := nameOf(tag)
	if err := importOnce(ctx, host, name, tag); err != nil {
		return "", fmt.Errorf("no image %s: %w", name, err)
	}
	return name, nil
}

func imported(t testing.TB, tag string) string {
	t.Helper()
	name, err := Import(t.Context(), Host(t), tag)
	needtest.Need(t, err == nil, "docker", fmt.Sprint(err))
	return name
}

// importOnce imports an image unless the daemon has it. A lock makes test processes take turns, because they may share a
// daemon.
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
		return !labelled || has == version, nil // an image without the label was made by the user
	}
	dir, err := tars()
	if err != nil {
		if ok, _ := there(""); ok {
			return nil // the image is there, so its file is not needed
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

// last returns the end of a command's output.
func last(said string) string {
	const max = 600
	said = strings.TrimSpace(said)
	if len(said) > max {
		said = "…" + said[len(said)-max:]
	}
	return said
}
