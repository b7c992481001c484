package pyexec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// readForm returns the parts of a request in their order.
func readForm(r *http.Request) (names []string, parts map[string]string, err error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, nil, err
	}
	parts = map[string]string{}
	for form := multipart.NewReader(r.Body, params["boundary"]); ; {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return names, parts, nil
		}
		if err != nil {
			return nil, nil, err
		}
		raw, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, part.FormName()+" "+part.Header.Get("Content-Type"))
		parts[part.FormName()] = string(raw)
	}
}

func TestAnUploadIsMetadataThenTarThenStdin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(file, []byte("skipped the tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file) //nolint:gosec // a test's file
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := opened.Seek(8, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	const meta, tarPart, stdinPart = "metadata application/json", "tar application/x-tar", "stdin application/octet-stream"
	for _, c := range []struct {
		name  string
		in    pyexec.Input
		known bool
		want  []string
	}{
		{"tar of known size", pyexec.Input{Tar: strings.NewReader("the tar")}, true, []string{meta, tarPart}},
		{"tar of a file from where it stands", pyexec.Input{Tar: opened}, true, []string{meta, tarPart}},
		{"tar of a file that grows meanwhile", pyexec.Input{Tar: &growing{Reader: strings.NewReader("the tar and more")}}, true, []string{meta, tarPart}},
		{"tar of a stream", pyexec.Input{Tar: io.MultiReader(strings.NewReader("the tar"))}, false, []string{meta, tarPart}},
		{"tar and stdin", pyexec.Input{Tar: bytes.NewBufferString("the tar"), Stdin: strings.NewReader("the stdin")}, true, []string{meta, tarPart, stdinPart}},
		{"stdin alone", pyexec.Input{Stdin: strings.NewReader("the stdin")}, true, []string{meta, stdinPart}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names []string
			var parts map[string]string
			var length int64
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var err error
				length = r.ContentLength
				if names, parts, err = readForm(r); err != nil {
					t.Error(err)
				}
				if r.Header.Get("Expect") != "100-continue" || r.URL.Path != "/api/v1/exec/sync" {
					t.Errorf("%s has Expect %q", r.URL.Path, r.Header.Get("Expect"))
				}
				answerJSON(t, w, done)
			})
			e, err := client.Run(t.Context(), pyexec.Spec{Entrypoint: "main.py", IdempotencyKey: "k"}, c.in)
			if err != nil || e.Stdout != "42\n" {
				t.Fatalf("%+v, %v", e, err)
			}
			if fmt.Sprint(names) != fmt.Sprint(c.want) {
				t.Errorf("parts %v, want %v", names, c.want)
			}
			want := `{"entrypoint":"main.py","idempotency_key":"k"}`
			if c.in.Tar != nil { // the server takes the requirements from it
				want = `{"entrypoint":"main.py","detect":true,"idempotency_key":"k"}`
			}
			if parts["metadata"] != want {
				t.Errorf("metadata %s, want %s", parts["metadata"], want)
			}
			if (c.in.Tar != nil && parts["tar"] != "the tar") || (c.in.Stdin != nil && parts["stdin"] != "the stdin") {
				t.Errorf("parts %q", parts)
			}
			if (length >= 0) != c.known {
				t.Errorf("Content-Length %d", length)
			}
		})
	}
}

func TestATarIsSearchedForRequirementsUnlessTheSpecSaysOtherwise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec pyexec.Spec
		want any
	}{
		{pyexec.Spec{}, true},
		{pyexec.Spec{Detect: new(false)}, false},
		{pyexec.Spec{RequirementsTxt: "idna"}, nil},
		{pyexec.Spec{SessionID: "ctx-1"}, nil}, // the error is that of the tar
	} {
		for _, folder := range []bool{false, true} {
			in := pyexec.Input{Tar: strings.NewReader("the tar")}
			if folder {
				in = pyexec.Input{Folder: t.TempDir()}
				if err := os.WriteFile(filepath.Join(in.Folder, "main.py"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var sent map[string]any
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, parts, err := readForm(r)
				if err := errors.Join(err, json.Unmarshal([]byte(parts["metadata"]), &sent)); err != nil {
					t.Error(err)
				}
				answerJSON(t, w, done)
			})
			if _, err := client.Run(t.Context(), c.spec, in); err != nil || sent["detect"] != c.want {
				t.Errorf("%+v, folder %t: detect %v, %v", c.spec, folder, sent["detect"], err)
			}
		}
	}
}

// growing is 7 bytes long while its size is asked for, and longer when it is read.
type growing struct{ *strings.Reader }

func (g *growing) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return 7, nil
	}
	return g.Reader.Seek(offset, whence)
}

func TestCodeAloneIsSentAsJSON(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body) != 3 || body["code"] != "print(1)" || body["idempotency_key"] == "" {
			t.Errorf("body %v, error %v", body, err)
		}
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Expect") != "" || r.URL.Path != "/api/v1/exec/async" {
			t.Errorf("%s as %s, Expect %q", r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Expect"))
		}
		answer(t, w, http.StatusAccepted, "application/json", `{"execution_id":"exe_9"}`)
	})
	id, err := c.Submit(t.Context(), pyexec.Spec{Code: "print(1)", Config: pyexec.Config{TimeoutSeconds: new(0.0)}}, pyexec.Input{})
	if err != nil || id != "exe_9" {
		t.Errorf("%q, %v", id, err)
	}
}

// counting counts what is read of it.
type counting struct {
	read atomic.Int64
	io.Reader
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func TestARefusalComesBeforeTheUpload(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		problem(t, w, http.StatusTooManyRequests, "exhausted")
	})
	upload := &counting{Reader: io.LimitReader(zeros{}, 1<<40)}
	_, err := c.Run(t.Context(), pyexec.Spec{}, pyexec.Input{Tar: upload})
	if pyexec.CodeOf(err) != pyexec.CodeExhausted {
		t.Errorf("the error is %v", err)
	}
	if n := upload.read.Load(); n != 0 {
		t.Errorf("%d bytes of the upload were read", n)
	}
	// With a key it may try again, because nothing was read.
	hooks := 0
	again := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if hooks == 0 {
			problem(t, w, http.StatusTooManyRequests, "exhausted")
			return
		}
		if _, parts, err := readForm(r); err != nil || parts["tar"] != "one stream" {
			t.Errorf("parts %v, error %v", parts, err)
		}
		answerJSON(t, w, done)
	}, pyexec.WithRetryHook(func(pyexec.Retry) { hooks++ }))
	if _, err := again.Run(t.Context(), pyexec.Spec{IdempotencyKey: "k"}, pyexec.Input{Tar: io.MultiReader(strings.NewReader("one stream"))}); err != nil || hooks != 1 {
		t.Errorf("error %v after %d retries", err, hooks)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestAnUploadIsSentAgainOnlyWhereItCanBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		tar  io.Reader
		want int64
	}{
		{"a seeker is sent again from where it began", strings.NewReader("the tar"), 3},
		{"a stream that was read is not", io.MultiReader(strings.NewReader("the tar")), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if _, parts, err := readForm(r); err != nil || parts["tar"] != "the tar" {
					t.Errorf("parts %v, error %v", parts, err)
				}
				if requests.Add(1) < 3 {
					problem(t, w, http.StatusServiceUnavailable, "unavailable")
					return
				}
				answer(t, w, http.StatusAccepted, "application/json", `{"execution_id":"exe_9"}`)
			})
			_, err := client.Submit(t.Context(), pyexec.Spec{IdempotencyKey: "k"}, pyexec.Input{Tar: c.tar})
			if requests.Load() != c.want || (err == nil) != (c.want == 3) {
				t.Errorf("%d requests, error %v", requests.Load(), err)
			}
		})
	}
}

func TestAReaderThatFailsEndsTheUpload(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answerJSON(t, w, done)
	})
	_, err := c.Run(t.Context(), pyexec.Spec{}, pyexec.Input{Tar: io.MultiReader(strings.NewReader("x"), failing{broken})})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
