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
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor"
)

// isStatic reports whether a program needs no libraries.
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

// required reports whether CI insists on a thing.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("PYEXEC_TEST_REQUIRE"), ","), what)
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

// inspectRaw is all that the daemon tells about an image, its history included.
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

// sdist is a source archive that setuptools builds.
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

// preparedBefore are the images that preparations had made in the daemon before the tests did.
var preparedBefore struct {
	once   sync.Once
	host   string
	images []string
}

// forgetPrepared lets forgetAllPrepared remove what preparations make from now on.
func forgetPrepared(t testing.TB, b *Backend) {
	t.Helper()
	if isBeside() {
		return // whom it works beside forgets all
	}
	preparedBefore.once.Do(func() {
		preparedBefore.host, preparedBefore.images = b.daemon.host, preparedImages(t, b)
	})
}

// forgetAllPrepared removes the images that the tests' preparations have made. It comes after all tests, because an image may
// be used by several.
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
	defer d.close() //nolint:errcheck // nothing is lost
	for range 2 {   // the second time without what others were made of it
		ids, err := d.images(ctx, map[string]string{labelPrepared: ""})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if !slices.Contains(preparedBefore.images, id) {
				_ = d.removeImage(ctx, id) // the next round says whether it is needed
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
