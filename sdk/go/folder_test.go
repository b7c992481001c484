package pyexec_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
	"github.com/python-executor/python-executor/sdk/go/pack"
)

// received reads a submission: its metadata and the names in its tar.
func received(t *testing.T, r *http.Request) (metadata map[string]any, names []string) {
	t.Helper()
	form, err := r.MultipartReader()
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return metadata, names
		}
		if err != nil {
			t.Error(err)
			return metadata, names
		}
		if part.FormName() == "metadata" {
			err = json.NewDecoder(part).Decode(&metadata)
		} else {
			for tr := tar.NewReader(part); err == nil; {
				var h *tar.Header
				if h, err = tr.Next(); err == nil {
					names = append(names, h.Name)
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAFolderIsSentByTheRulesOfTheCLI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"app.py": "print(1)", "a.log": "", ".gitignore": "*.log\n", "requirements.txt": "six\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got map[string]any
	var names []string
	var refuse atomic.Bool
	refuse.Store(true)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, names = received(t, r)
		if refuse.Swap(false) { // the folder is sent again
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/async") {
			answerJSON(t, w, `{"execution_id":"exe_1"}`)
			return
		}
		answerJSON(t, w, done)
	})
	if e, err := c.Run(t.Context(), pyexec.Spec{}, pyexec.Input{Folder: dir}); err != nil || e.Stdout != "42\n" {
		t.Fatalf("%+v, %v", e, err)
	}
	if !slices.Equal(names, []string{".gitignore", "app.py", "requirements.txt"}) || got["entrypoint"] != "app.py" || got["detect"] != true {
		t.Errorf("sent %v, %q", got, names)
	}
	id, err := c.Submit(t.Context(), pyexec.Spec{Command: []string{"ls"}, RequirementsTxt: "idna"}, pyexec.Input{Folder: dir, Pack: pack.Options{All: true}})
	if err != nil || id != "exe_1" || got["entrypoint"] != nil || got["detect"] != nil || !slices.Contains(names, "a.log") {
		t.Errorf("%s, %v, sent %v", id, err, got)
	}
	for _, bad := range []string{filepath.Join(dir, "none"), t.TempDir()} {
		if _, err := c.Run(t.Context(), pyexec.Spec{}, pyexec.Input{Folder: bad}); pyexec.CodeOf(err) != pyexec.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "app.py")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), pyexec.Spec{}, pyexec.Input{Folder: dir}); err == nil || !strings.Contains(err.Error(), "entrypoint: must be given") {
		t.Error(err)
	}
	if _, err := c.Submit(t.Context(), pyexec.Spec{}, pyexec.Input{Folder: dir, Tar: strings.NewReader("")}); err == nil || !strings.Contains(err.Error(), "folder: must not") {
		t.Error(err)
	}
}

func TestWaitIsForTheEnd(t *testing.T) {
	t.Parallel()
	c, _ := script(t, done, nil, queuedAt, out(2, "a")+endAt3)
	if e, err := c.Wait(t.Context(), "exe_1"); err != nil || !e.Finished() {
		t.Errorf("%+v, %v", e, err)
	}
	lost, _ := script(t, done, nil, "status 404")
	if _, err := lost.Wait(t.Context(), "exe_1"); pyexec.CodeOf(err) != pyexec.CodeNotFound {
		t.Error(err)
	}
}

func TestReadyIsAnAnswerNotAnError(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(status.Load()))
	})
	for code, want := range map[int]bool{200: true, 503: false, 500: false} {
		status.Store(int64(code))
		ready, err := c.Ready(t.Context())
		if ready != want || (err != nil) != (code == 500) {
			t.Errorf("%d: %t, %v", code, ready, err)
		}
	}
	// The end of ctx says nothing about the server.
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if _, err := c.Ready(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestArtifactsAreSavedInTheFolderOnly(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "exe_1") {
			problem(t, w, http.StatusNotFound, pyexec.CodeNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/x-tar")
		a := tar.NewWriter(w)
		for _, name := range []string{"out/plot.png", "../escaped", "run.sh", "link/x"} {
			if err := errors.Join(a.WriteHeader(&tar.Header{Name: name, Size: 1, Mode: 0o755, Typeflag: tar.TypeReg}), second(a.Write([]byte("x")))); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(a.WriteHeader(&tar.Header{Name: "soft", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), a.Close()); err != nil {
			t.Error(err)
		}
	})
	parent := t.TempDir()
	dir := filepath.Join(parent, "results")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(parent, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	saved, err := c.SaveArtifacts(t.Context(), "exe_1", dir)
	if err == nil || !slices.Equal(saved, []string{"out/plot.png", "run.sh"}) {
		t.Errorf("saved %q, error %v", saved, err)
	}
	if found, err := os.ReadDir(parent); err != nil || len(found) != 1 {
		t.Errorf("written outside: %v, %v", found, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "soft")); err == nil {
		t.Error("a link was saved")
	}
	if _, err := c.SaveArtifacts(t.Context(), "exe_2", dir); pyexec.CodeOf(err) != pyexec.CodeNotFound {
		t.Error(err)
	}
}

func TestAnUploadReportsItsProgressAgainWhenItIsRepeated(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || string(raw) != "12345678" {
			t.Errorf("got %q, %v", raw, err)
		}
		if refuse.Swap(false) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answerJSON(t, w, `{"path":"f","size_bytes":8}`)
	})
	behind := strings.NewReader("sent before 12345678")
	if _, err := behind.Seek(12, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		reader io.Reader
		refuse bool
		total  int64
		wholes int
	}{
		{"a file that is sent twice", strings.NewReader("12345678"), true, 8, 2},
		{"the rest of a file", behind, true, 8, 2},
		{"a stream", io.MultiReader(strings.NewReader("12345678")), false, -1, 1},
	} {
		refuse.Store(test.refuse)
		last, wholes := int64(0), 0
		r := pyexec.UploadProgress(test.reader, func(sent, total int64) {
			if last = sent; sent == 8 {
				wholes++
			}
			if total != test.total {
				t.Errorf("%s: total %d", test.name, total)
			}
		})
		if _, err := c.UploadFile(t.Context(), "ctx-1", "f", r); err != nil || last != 8 || wholes != test.wholes {
			t.Errorf("%s: %d bytes, %d times again, error %v", test.name, last, wholes, err)
		}
	}
}

func TestARunWhoseConnectionBrokeIsNotCalledKilled(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	var requests atomic.Int64
	var refuse atomic.Bool
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		keys[body["idempotency_key"].(string)] = true
		if requests.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		if refuse.Swap(false) {
			problem(t, w, http.StatusServiceUnavailable, pyexec.CodeUnavailable)
			return
		}
		answerJSON(t, w, `{"execution_id":"exe_1","status":"killed"}`)
	})
	_, err := c.Run(t.Context(), pyexec.Spec{Code: "1"}, pyexec.Input{})
	e, ok := errors.AsType[*pyexec.Error](err)
	if !ok || e.Code != pyexec.CodeUnavailable || e.ExecutionID != "exe_1" || requests.Load() != 2 {
		t.Errorf("%d requests, error %v", requests.Load(), err)
	}
	if len(keys) != 1 {
		t.Errorf("the keys are %q", slices.Sorted(maps.Keys(keys)))
	}
	// An Execution that somebody else killed is a result, also after an answer that asked for another attempt.
	refuse.Store(true)
	if e, err := c.Run(t.Context(), pyexec.Spec{Code: "1"}, pyexec.Input{}); err != nil || e.Status != pyexec.StatusKilled || len(keys) != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestTheEnvironmentNamesServerAndToken(t *testing.T) {
	t.Setenv(pyexec.EnvServer, "")
	if c, err := pyexec.NewClientFromEnv(); err != nil || c.String() != "pyexec.Client(http://127.0.0.1:8080)" {
		t.Errorf("%s, %v", c, err)
	}
	var token atomic.Value
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("Authorization"))
		answerJSON(t, w, `{"ok":true}`)
	})
	server := strings.TrimSuffix(strings.TrimPrefix(c.String(), "pyexec.Client("), ")")
	t.Setenv(pyexec.EnvServer, server)
	t.Setenv(pyexec.EnvToken, "s3cret")
	for want, opts := range map[string][]pyexec.Option{"Bearer s3cret": nil, "Bearer other": {pyexec.WithToken("other")}} {
		c, err := pyexec.NewClientFromEnv(opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Health(t.Context()); err != nil || token.Load() != want {
			t.Errorf("token %q, %v", token.Load(), err)
		}
		c.CloseIdleConnections()
	}
	t.Setenv(pyexec.EnvToken, "s3cret\n")
	_, badToken := pyexec.NewClientFromEnv()
	t.Setenv(pyexec.EnvServer, "127.0.0.1:8080")
	_, badServer := pyexec.NewClientFromEnv()
	for want, err := range map[string]error{
		"PYEXEC_TOKEN: must be visible ASCII characters (character 7 is white space or a control character)":             badToken,
		`PYEXEC_SERVER: must begin with http:// or https://: did you mean http://127.0.0.1:8080? (got "127.0.0.1:8080")`: badServer,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
