package dockerbackend

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// remoteSection returns a configuration without a host. The environment names the daemon.
func remoteSection(t *testing.T, more map[string]any) json.RawMessage {
	t.Helper()
	settings := map[string]any{"host": "", "pool": map[string]any{"min_idle": 0, "sessions": 0}}
	for k, v := range more {
		settings[k] = v
	}
	return section(t, settings)
}

// remoteBackend makes a backend with DOCKER_HOST and the folder of certificates in the environment.
func remoteBackend(t *testing.T, instance, dir string, options json.RawMessage) *Backend {
	t.Helper()
	b, err := testFactory(t.Context(), plugin.Configure{Name: "docker", Instance: instance, DataDir: dir, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestADaemonIsReachedByTLS checks all features that use the daemon's connections, over TCP and TLS, with nothing shared with
// its machine: programs, files in both directions, a preparation, a Session, and Attach after the backend has died.
func TestADaemonIsReachedByTLS(t *testing.T) {
	host, certificates := dockertest.Remote(t)
	index := newWheelhouse(t)
	index.probe()
	options := remoteSection(t, map[string]any{"prepare": map[string]any{"index_url": index.url(t)}})
	id, dir := instance(t), t.TempDir()
	forgetPrepared(t, openBackend(t, nil))
	t.Setenv("DOCKER_HOST", host)
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	t.Setenv("DOCKER_CERT_PATH", certificates)
	b := remoteBackend(t, id, dir, options)
	t.Cleanup(func() {
		removeEnded(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	info, err := b.Info(t.Context())
	if err != nil || info.Details["host"] != host || b.daemon.local() {
		t.Errorf("%v; %v", err, info.Details)
	}
	if !strings.Contains(strings.Join(info.Warnings, "\n"), "the daemon is on another machine") {
		t.Errorf("no warning about the firewall, which is out of reach: %q", info.Warnings)
	}
	if out, _ := succeeds(t, b, executor.Spec{Code: "print(6*7)"}); out != "42\n" {
		t.Errorf("%q", out)
	}

	t.Run("files in and out", func(t *testing.T) {
		big := bytes.Repeat([]byte("python-executor\n"), 1<<19) // 8 MiB, larger than any window
		var tarred bytes.Buffer
		w := tar.NewWriter(&tarred)
		for name, content := range map[string][]byte{"main.py": []byte("data = open('big', 'rb').read()\nopen('copy', 'wb').write(data[::-1])\nprint(len(data))\n"), "big": big} {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		x := job(executor.Spec{Outputs: []string{"copy"}})
		x.Workspace = &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(tarred.Bytes())), nil }}
		kept := &keeping{}
		r, err := b.Run(t.Context(), x, kept)
		if err != nil || r.Status != executor.StatusSucceeded || kept.stdout.String() != fmt.Sprintln(len(big)) || len(kept.artifact) != len(big) {
			t.Errorf("%v %+v %+v; %q, %d bytes came back", err, r, r.Failure, kept.stdout.String(), len(kept.artifact))
		}
		if err := b.Remove(t.Context(), x.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("requirements", func(t *testing.T) {
		out, r := succeeds(t, b, executor.Spec{Code: "import pyexec_probe\nprint(pyexec_probe.__version__)", Requirements: "pyexec-probe<2"})
		if out != "1.2.3\n" || len(r.Requirements) == 0 {
			t.Errorf("%q %+v", out, r)
		}
	})

	t.Run("a session", func(t *testing.T) {
		s := executor.Session{ID: "ses_" + random(), Limits: job(executor.Spec{}).Limits}
		if _, err := b.OpenSession(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		succeeds(t, b, executor.Spec{Session: s.ID, Code: "x = 41"})
		if out, _ := succeeds(t, b, executor.Spec{Session: s.ID, Code: "print(x + 1)"}); out != "42\n" {
			t.Errorf("%q", out)
		}
		if err := b.CloseSession(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("attach after a death", func(t *testing.T) {
		x := job(executor.Spec{Code: "print('one', flush=True)\nfor i in range(3000): print(i)\n"})
		first := &journal{}
		stopped := make(chan struct{})
		first.on = func(e executor.Event) error {
			if _, ok := e.Body.(executor.Output); ok {
				select {
				case <-stopped:
				default:
					close(stopped)
				}
			}
			return nil
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.Run(context.WithoutCancel(t.Context()), x, first)
			done <- err
		}()
		<-stopped
		b.abandon()
		<-done
		b = remoteBackend(t, id, dir, options)
		second := &journal{}
		resume := executor.Resume{Handle: first.started.Handle, Stdout: int64(first.stdout.Len()), Stderr: int64(first.stderr.Len())}
		r, err := b.Attach(t.Context(), x, resume, second)
		if err != nil || r.Status != executor.StatusSucceeded {
			t.Fatalf("%v %+v %+v", err, r, r.Failure)
		}
		want := "one\n"
		for i := range 3000 {
			want += fmt.Sprintln(i)
		}
		if got := first.stdout.String() + second.stdout.String(); got != want {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
		if err := b.Remove(t.Context(), x.ID); err != nil {
			t.Error(err)
		}
	})
}

// TestADaemonIsReachedByAContextOfTheDockerCommand, but not without its certificates.
func TestADaemonIsReachedByAContextOfTheDockerCommand(t *testing.T) {
	host, certificates := dockertest.Remote(t)
	options := remoteSection(t, nil)
	folder := t.TempDir()
	sum := sha256.Sum256([]byte("far"))
	context := hex.EncodeToString(sum[:])
	keep := func(content string, path ...string) {
		t.Helper()
		file := filepath.Join(append([]string{folder}, path...)...)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep(fmt.Sprintf(`{"Name": "far", "Endpoints": {"docker": {"Host": %q}}}`, host), "contexts", "meta", context, "meta.json")
	id := instance(t)
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("DOCKER_CONFIG", folder)
	t.Setenv("DOCKER_CONTEXT", "far")
	if _, err := dial(t.Context(), ""); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		raw, err := os.ReadFile(filepath.Join(certificates, name))
		if err != nil {
			t.Fatal(err)
		}
		keep(string(raw), "contexts", "tls", context, "docker", name)
	}
	b := remoteBackend(t, id, t.TempDir(), options)
	if out, _ := succeeds(t, b, executor.Spec{Code: "print(6*7)"}); out != "42\n" {
		t.Errorf("%q", out)
	}
	removeEnded(t, b)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// keeping is a journal that also keeps the last Artifact.
type keeping struct {
	journal
	artifact []byte
}

// Artifact implements executor.Sink.
func (k *keeping) Artifact(_ *tar.Header, r io.Reader) (err error) {
	k.artifact, err = io.ReadAll(r)
	return err
}
