package tests

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// A tar that is larger than the data folder and than the memory that core and plugin may take arrives whole: nobody
// keeps it on its way.
func TestALargeTarPassesThroughAndIsKeptNowhere(t *testing.T) {
	needtest.Long(t, "the tests of frontends/http and core/runner/archive stream archives")
	skipWithout(t, "root", os.Geteuid() == 0)
	const fileBytes, files, limit = 40 << 20, 5, 64 << 20
	data := t.TempDir()
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		skipWithout(t, "mounts", false)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	s := startServer(t, []string{"PYEXEC_DATA_DIR=" + data})
	plugin := s.plugin()

	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	sums := make(chan string, 1)
	go func() {
		sum := sha256.New()
		err := form.WriteField("metadata", `{"config":{"disk_mb":512,"memory_mb":512}}`)
		if err == nil {
			err = writeLarge(form, sum, fileBytes, files)
		}
		sums <- hex.EncodeToString(sum.Sum(nil))
		if err == nil {
			err = form.Close()
		}
		_ = w.CloseWithError(err)
	}()
	got := s.do(s.request(http.MethodPost, "/api/v1/exec/sync", r, "Content-Type", form.FormDataContentType()))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), <-sums) {
		t.Errorf("%d %.400s", got.status, got.body)
	}
	for name, pid := range map[string]int{"core": s.cmd.Process.Pid, "plugin": plugin} {
		if _, peak := serve.RSS(pid); peak == 0 || peak > limit {
			t.Errorf("%s (pid %d): peak of %d bytes", name, pid, peak)
		}
	}
}

// writeLarge writes a tar of files whose names are numbers, and a program that prints the last one's digest.
func writeLarge(form *multipart.Writer, last io.Writer, size int64, files int) error {
	part, err := form.CreateFormFile("tar", "large.tar")
	if err != nil {
		return err
	}
	const program = "import hashlib\nprint(hashlib.file_digest(open('data/%d', 'rb'), 'sha256').hexdigest())\n"
	code := fmt.Sprintf(program, files-1)
	archive := tar.NewWriter(part)
	if err := archive.WriteHeader(&tar.Header{Name: "main.py", Mode: 0o644, Size: int64(len(code))}); err != nil {
		return err
	}
	if _, err := io.WriteString(archive, code); err != nil {
		return err
	}
	content := rand.NewChaCha8([32]byte{})
	for n := range files {
		if err := archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("data/%d", n), Mode: 0o644, Size: size}); err != nil {
			return err
		}
		to := io.Writer(archive)
		if n == files-1 {
			to = io.MultiWriter(archive, last)
		}
		if _, err := io.CopyN(to, content, size); err != nil {
			return err
		}
	}
	return archive.Close()
}
