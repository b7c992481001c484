package dockerbackend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// secretIndex is a package index that requires a password, with settings that hold the password in every possible place.
type secretIndex struct {
	*wheelhouse
	// secret is the password of the index, proxySecret that of the proxy.
	secret, proxySecret, netrc string
	prepare                    map[string]any
}

func newSecretIndex(t *testing.T) secretIndex {
	t.Helper()
	house := newWheelhouse(t)
	house.probe()
	s := secretIndex{wheelhouse: house, secret: "canary" + random(), proxySecret: "canary" + random(), netrc: filepath.Join(t.TempDir(), "netrc")}
	house.password = s.secret
	host := strings.TrimPrefix(strings.TrimSuffix(house.url(t), "/simple"), "http://")
	name, _, _ := strings.Cut(host, ":")
	if err := os.WriteFile(s.netrc, []byte("machine "+name+" login someone password "+s.secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.prepare = map[string]any{
		"index_url": "http://someone:" + s.secret + "@" + host + "/simple", "extra_index_urls": []string{"http://other:" + s.secret + "@" + host + "/simple"}, "network": "bridge",
	}
	return s
}

// backend returns a backend with the credentials of the index and of a proxy in its settings. It writes all its messages to
// log.
func (s secretIndex) openBackend(t *testing.T, log io.Writer, more map[string]any) *Backend {
	t.Helper()
	set := map[string]any{"prepare": s.prepare}
	for k, v := range more {
		set[k] = v
	}
	b := backendThatLogs(t, set, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	b.images.settings.netrc = s.netrc
	b.images.settings.proxies = map[string]string{"FTP_PROXY": "http://proxy:" + s.proxySecret + "@127.0.0.1:9"}
	forgetPrepared(t, b)
	return b
}

// syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// look is a Python program that prints where it finds the secret: in the environment, the command line and the mounts of each
// process, and in files. It holds the secret in two halves, so that it does not find itself.
func (s secretIndex) look() string {
	return `import os
secret, found = "` + s.secret[:9] + `".encode() + b"` + s.secret[9:] + `", []
def see(path):
    try:
        if secret in open(path, "rb").read():
            found.append(path)
    except OSError:
        pass
for process in os.listdir("/proc"):
    for name in ("environ", "cmdline", "mounts"):
        see(os.path.join("/proc", process, name))
for top in ("/etc", "/home", "/opt", "/root", "/run", "/tmp", "/var", "/work"):
    for folder, _, files in os.walk(top):
        for name in files:
            if os.path.isfile(os.path.join(folder, name)):
                see(os.path.join(folder, name))
print(found)
`
}

// TestIndexCredentialsReachOnlyTrustedImages: the author of an image controls what its Python does with credentials.
func TestIndexCredentialsReachOnlyTrustedImages(t *testing.T) {
	t.Parallel()
	index := newSecretIndex(t)
	spec := executor.Spec{Requirements: "pyexec-probe<2", Code: "import pyexec_probe\nprint(pyexec_probe.__version__)\n" + index.look()}
	image := dockertest.Python(t)
	for name, c := range map[string]struct {
		trusted []string
		works   bool
	}{
		"no image is trusted, not even the default one": {nil, false},
		"a pattern trusts the default image":            {[]string{"pyexec-other", "pyexec-*"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log syncBuffer
			b := index.openBackend(t, &log, map[string]any{"trusted_images": c.trusted})
			before := preparedImages(t, b)
			j := journal{}
			r, err := b.Run(t.Context(), job(spec), &j)
			if err != nil || (r.Status == executor.StatusSucceeded) != c.works {
				t.Fatalf("%v %+v %+v", err, r, r.Failure)
			}
			if c.works && j.stdout.String() != "1.2.3\n[]\n" {
				t.Errorf("the program found the secret in %q", j.stdout.String())
			}
			if !c.works && (r.Failure.Code != executor.Invalid || r.Failure.Field != "requirements_txt" || r.Failure.Phase != executor.PhasePrepare) {
				t.Errorf("%+v", r.Failure)
			}
			if say := fmt.Sprintf("add %q to backends.docker.trusted_images", image); !c.works && !strings.Contains(r.Failure.Message, say) {
				t.Errorf("the Failure does not contain %q: %s", say, r.Failure.Message)
			}
			index.nowhere(t, b, before, fmt.Sprintf("%+v %+v %+v %+v", r, r.Failure, j.progress, j.started)+j.stdout.String()+j.stderr.String()+log.String())
		})
	}
}

// nowhere fails t if the secret is in said, or in an image that the test made.
func (s secretIndex) nowhere(t *testing.T, b *Backend, before []string, said string) {
	t.Helper()
	if strings.Contains(said, s.secret) {
		t.Errorf("the secret is in the output: %s", said)
	}
	for _, id := range preparedImages(t, b) {
		if slices.Contains(before, id) {
			continue
		}
		if raw := inspectRaw(t, b, id); strings.Contains(raw, s.secret) {
			t.Errorf("the secret is in the image's settings: %s", raw)
		}
	}
}

// TestCommandsFindNoCredentialOfAnIndex: users write pre_commands, so the commands get no credentials of indexes even in a
// trusted image.
func TestCommandsFindNoCredentialOfAnIndex(t *testing.T) {
	t.Parallel()
	index := newSecretIndex(t)
	image := dockertest.Python(t)
	for name, c := range map[string]struct {
		trusted []string
		// sees reports whether the commands see the proxy's credentials.
		sees bool
	}{"untrusted": {nil, false}, "trusted": {[]string{image}, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := index.openBackend(t, io.Discard, map[string]any{"trusted_images": c.trusted})
			var seen sync.Once
			j := journal{on: func(e executor.Event) error {
				if p, ok := e.Body.(executor.Progress); ok && strings.HasPrefix(p.Message, "running") {
					seen.Do(func() { index.notInContainers(t, b) })
				}
				return nil
			}}
			r, err := b.Run(t.Context(), job(executor.Spec{Code: "1", PreCommands: []string{
				"echo proxy=$FTP_PROXY\npython3 <<'END'\n" + index.look() + "END\nexit 3 # " + random(),
			}}), &j)
			want := "proxy=http://127.0.0.1:9\n[]"
			if c.sees {
				want = "proxy=http://proxy:" + index.proxySecret + "@127.0.0.1:9\n[]"
			}
			if err != nil || r.Failure == nil || !strings.HasSuffix(r.Failure.Message, "exit code 3:\n"+want) {
				t.Errorf("%v, %+v, want %q", err, r.Failure, want)
			}
		})
	}
}

// notInContainers fails t if the secret is in the settings of b's containers.
func (s secretIndex) notInContainers(t *testing.T, b *Backend) {
	list, err := b.daemon.containers(t.Context(), map[string]string{labelInstance: b.place.Instance})
	if err != nil || len(list) == 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, c := range list {
		_, raw, err := b.daemon.api.ContainerInspectWithRaw(t.Context(), c.ID, false)
		if err != nil || bytes.Contains(raw, []byte(s.secret)) {
			t.Errorf("%v: the secret is in a container's settings: %s", err, raw)
		}
	}
}

// spy is added to the image's Python, and reports whether it finds the secret in the input of an installation.
func (s secretIndex) spy() string {
	return `cat >>"$(python3 -c 'import json; print(json.__file__)')" <<'END'
import os, sys
if os.path.isdir("` + toolsFolder + `"):
    told = sys.stdin.readline() + repr(dict(os.environ)) + repr(sys.argv)
    for name in ["` + toolsFolder + `/" + n for n in os.listdir("` + toolsFolder + `")] + ["/proc/1/environ", "/proc/1/cmdline", "/proc/self/mounts"]:
        try: told += open(name).read()
        except (OSError, UnicodeDecodeError): pass
    print("caught", "` + s.secret[:9] + `" + "` + s.secret[9:] + `" in told, file=sys.stderr)
    os._exit(1)
END
# ` + random()
}

// TestAnImageThatSpiesCatchesNoCredentials: the image's Python installs the requirements.
func TestAnImageThatSpiesCatchesNoCredentials(t *testing.T) {
	t.Parallel()
	index := newSecretIndex(t)
	var log syncBuffer
	name := "pyexec-spy-" + strings.ToLower(random()) + ":1"
	spying := []string{index.spy()}
	b := index.openBackend(t, &log, map[string]any{"trusted_images": []string{dockertest.Python(t)}})
	base, err := b.images.ensure(t.Context(), b.config.DefaultImage, func(executor.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	spied, failure, err := b.images.prepare(t.Context(), base, executor.Spec{PreCommands: spying}, nothing)
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if err := b.daemon.tag(t.Context(), spied.ID, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.daemon.removeImage(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	spec := executor.Spec{Image: name, Code: "1", Requirements: "pyexec-probe"}
	for what, c := range map[string]struct {
		trusted string
		spec    executor.Spec
		want    string
	}{
		"an untrusted image":          {b.config.DefaultImage, spec, "caught False"},
		"commands in a trusted image": {b.config.DefaultImage, executor.Spec{Code: "1", Requirements: spec.Requirements, PreCommands: spying}, "caught False"},
		"a trusted image":             {name, spec, "caught True"}, // shows that the spy works
	} {
		b := index.openBackend(t, &log, map[string]any{"trusted_images": []string{c.trusted}})
		if f := fails(t, b, c.spec); !strings.Contains(f.Message, c.want) {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if strings.Contains(log.String(), index.secret) {
		t.Errorf("the log has the secret: %s", log.String())
	}
}

func TestInfoSaysThatNoImageIsTrusted(t *testing.T) {
	t.Parallel()
	index := newSecretIndex(t)
	for _, c := range []struct {
		trusted []string
		says    bool
	}{{nil, true}, {[]string{"python"}, false}} {
		b := index.openBackend(t, io.Discard, map[string]any{"trusted_images": c.trusted})
		info, err := b.Info(t.Context())
		says := slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.Contains(w, "backends.docker.trusted_images") })
		if err != nil || says != c.says || strings.Contains(fmt.Sprint(info), index.secret) {
			t.Errorf("%v: %v, %v", c.trusted, err, info)
		}
	}
}

func TestASettingThatIsOfTheWrongKindIsNamedWithoutItsCredentials(t *testing.T) {
	t.Parallel()
	err := Check("docker", []byte(`{"prepare": {"extra_index_urls": "https://someone:canary@index.example.org/simple", "proxy": ["http://x:canary@y"]}}`))
	for _, want := range []string{"backends.docker.prepare.extra_index_urls: ", "backends.docker.prepare.proxy: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
	if err := Check("docker", []byte(`{"trusted_images": ["python", "a b"]}`)); err == nil || !strings.Contains(err.Error(), "backends.docker.trusted_images[1]: ") {
		t.Error(err)
	}
}
