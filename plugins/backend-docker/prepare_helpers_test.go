package dockerbackend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// isStatic reports whether a program is linked statically.
func isStatic(t testing.TB, path string) bool {
	t.Helper()
	if path == "" {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// fails runs spec, whose preparation must fail.
func fails(t testing.TB, b executor.Backend, spec executor.Spec) executor.Failure {
	t.Helper()
	var j journal
	r, err := b.Run(t.Context(), job(spec), &j)
	if err != nil || r.Status != executor.StatusFailed || r.Failure == nil {
		t.Fatalf("%v %+v; stdout %q", err, r, j.stdout.String())
	}
	if j.started != nil {
		t.Error("the program was started")
	}
	return *r.Failure
}

// inspectRaw returns everything that the daemon knows about an image, with its history.
func inspectRaw(t testing.TB, b *Backend, id string) string {
	t.Helper()
	var raw bytes.Buffer
	if _, err := b.daemon.api.ImageInspect(t.Context(), id, client.ImageInspectWithRawResponse(&raw)); err != nil {
		t.Fatal(err)
	}
	history, err := b.daemon.api.ImageHistory(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return raw.String() + fmt.Sprint(history)
}

// sdist returns a source archive that setuptools builds.
func sdist(t testing.TB, module, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"PKG-INFO":       "Metadata-Version: 2.1\nName: " + module + "\nVersion: " + version + "\n",
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
		"backend.py": "import os, zipfile\ndef build_wheel(out, *a, **k):\n  name = '" + module + "-" + version + "-py3-none-any.whl'\n" +
			"  z = zipfile.ZipFile(os.path.join(out, name), 'w')\n  info = '" + module + "-" + version + ".dist-info/'\n" +
			"  files = {'" + module + ".py': '', info + 'METADATA': 'Metadata-Version: 2.1\\nName: " + module + "\\nVersion: " + version + "\\n', info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}\n" +
			"  for n, c in files.items(): z.writestr(n, c)\n  z.writestr(info + 'RECORD', ''.join(n + ',,\\n' for n in files))\n  z.close()\n  return name\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: module + "-" + version + "/" + name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// preparedBefore holds the prepared images that the daemon had before the tests.
var preparedBefore struct {
	once   sync.Once
	host   string
	images []string
}

// forgetPrepared makes forgetAllPrepared remove the images that are prepared from now on.
func forgetPrepared(t testing.TB, b *Backend) {
	t.Helper()
	if os.Getenv(dockertest.Variable) != "" {
		return // the first process removes the images of both, and a shared daemon's end those of all
	}
	preparedBefore.once.Do(func() {
		preparedBefore.host, preparedBefore.images = b.daemon.host, preparedImages(t, b)
	})
}

// forgetAllPrepared removes the images that the tests have prepared. It runs after all tests, because several may use an image.
func forgetAllPrepared() error {
	if preparedBefore.host == "" {
		return nil
	}
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	d, err := dial(ctx, preparedBefore.host)
	if err != nil {
		return err
	}
	defer d.close() //nolint:errcheck // nothing depends on it
	for range 2 {   // the second round removes the bases of images removed in the first
		ids, err := d.images(ctx, map[string]string{labelPrepared: ""})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if !slices.Contains(preparedBefore.images, id) {
				_ = d.removeImage(ctx, id) // an image that is still needed fails, and the next round tries again
			}
		}
	}
	return nil
}

func preparedImages(t testing.TB, b *Backend) []string {
	t.Helper()
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	ids, err := b.daemon.images(ctx, map[string]string{labelPrepared: ""})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}
