package jobs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// serve starts a transfer on a data folder, and closes it with t.
func serve(t *testing.T, folder string) *transfer {
	t.Helper()
	x, err := newTransfer(TransferConfig{Listen: "127.0.0.1:0"}, folder, []byte("runner"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.close() })
	return x
}

// get returns the status of a request, and the files of a tar.
func get(t *testing.T, method, url string) (int, map[string]string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	found := map[string]string{}
	for in := tar.NewReader(answer.Body); answer.StatusCode == http.StatusOK && method == http.MethodGet; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, _ = io.Copy(io.Discard, answer.Body)
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(content)
	}
	return answer.StatusCode, found
}

func texts(list ...string) (all []inputFile) {
	for i := 0; i < len(list); i += 2 {
		all = append(all, inputFile{list[i], strings.NewReader(list[i+1])})
	}
	return all
}

// past and future are times at which what is put expires.
var past, future = time.Unix(1, 0), time.Unix(1<<33, 0)

func put(t *testing.T, x *transfer, id string, expires time.Time, list []inputFile) string {
	t.Helper()
	url, err := x.put(id, taskProgram, expires, list)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func TestAnInputIsSentOnceAndWhole(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	url := put(t, x, "exe_1", future, texts("start.json", "{}", "stdin", ""))
	if code, _ := get(t, http.MethodHead, url); code != http.StatusOK {
		t.Errorf("HEAD: %d", code)
	}
	code, files := get(t, http.MethodGet, url)
	if code != http.StatusOK || len(files) != 2 || files["start.json"] != "{}" {
		t.Errorf("%d %q", code, files)
	}
	if code, _ := get(t, http.MethodGet, url); code != http.StatusGone {
		t.Errorf("a second request gets %d", code)
	}
	x.drop("exe_1")
	if code, _ := get(t, http.MethodGet, url); code != http.StatusNotFound {
		t.Errorf("after the end a request gets %d", code)
	}
}

func TestATransferThatBrokeOffCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	large := strings.Repeat("x", 64<<20)
	url := put(t, x, "exe_1", future, texts("workspace.tar", large))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(io.Discard, answer.Body, 1<<20)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	var code int
	var files map[string]string
	awaittest.Until(t, "the end of the first request in the server", func() bool {
		code, files = get(t, http.MethodGet, url)
		return code != http.StatusConflict
	})
	if code != http.StatusOK || files["workspace.tar"] != large {
		t.Errorf("the second request gets %d and %d bytes", code, len(files["workspace.tar"]))
	}
}

func TestAnInputOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	x := serve(t, folder)
	url := put(t, x, "exe_1", future, texts("start.json", "{}"))
	next := serve(t, folder) // a new generation starts before the former has ended
	if next.base != x.base {
		t.Errorf("the address was %s and is %s", x.base, next.base)
	}
	if err := x.close(); err != nil {
		t.Fatal(err)
	}
	if code, files := get(t, http.MethodGet, url); code != http.StatusOK || files["start.json"] != "{}" {
		t.Errorf("%d %q", code, files)
	}
}

func TestAURLMustBeSignedAndInTime(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	late := put(t, x, "exe_1", past, texts("start.json", "{}"))
	if code, _ := get(t, http.MethodGet, late); code != http.StatusGone {
		t.Errorf("an expired URL gets %d", code)
	}
	other := x.base + "/input/exe_1/program/"
	for name, token := range map[string]string{
		"another execution": x.token("exe_2", taskProgram, future), "another task": x.token("exe_1", taskPrepare, future),
		"no signature": "AAAA", "no base64": "!", "another key": serve(t, t.TempDir()).token("exe_1", taskProgram, future),
	} {
		if code, _ := get(t, http.MethodGet, other+token); code != http.StatusNotFound {
			t.Errorf("%s: %d", name, code)
		}
	}
	if code, _ := get(t, http.MethodGet, other+x.token("exe_1", taskProgram, future)); code != http.StatusOK {
		t.Errorf("the right token gets %d", code)
	}
}

func TestTheRunnerKeepsItsModeAndItsSum(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	code, files := get(t, http.MethodGet, x.runnerURL())
	if code != http.StatusOK || files[runnerFile] != "runner" {
		t.Errorf("%d %q", code, files)
	}
	h, err := tar.NewReader(bytes.NewReader(x.runner)).Next()
	if err != nil || h.Mode != 0o755 {
		t.Errorf("%+v %v", h, err)
	}
	if code, _ := get(t, http.MethodGet, x.base+"/runner/0"); code != http.StatusNotFound {
		t.Errorf("another sum gets %d", code)
	}
}

func TestOldInputsAreSwept(t *testing.T) {
	t.Parallel()
	x := serve(t, t.TempDir())
	put(t, x, "exe_1", future, texts("start.json", "{}"))
	written, err := os.Stat(x.input("exe_1", taskProgram))
	if err != nil {
		t.Fatal(err)
	}
	x.sweep(written.ModTime().Add(time.Hour), 2*time.Hour)
	if _, err := os.Stat(x.input("exe_1", taskProgram)); err != nil {
		t.Error(err)
	}
	x.sweep(written.ModTime().Add(3*time.Hour), 2*time.Hour)
	if _, err := os.Stat(x.input("exe_1", taskProgram)); err == nil {
		t.Error("an old input is still there")
	}
}
