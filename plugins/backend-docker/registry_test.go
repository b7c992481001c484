package dockerbackend

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/cli/cli/config/types"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// imageRegistry is a registry with one image, app:1, on this machine's loopback, where daemons speak HTTP.
type imageRegistry struct {
	server *httptest.Server
	// user and password are required in requests unless they are empty.
	user, password string
	digest         string
	pulls          atomic.Int64
	hold           chan struct{} // if set, delays the layer until it is closed
	asked          chan struct{} // closed when the layer is requested
	once           sync.Once
	content        map[string][]byte
	types          map[string]string
}

// layerPiece and layerPause are the size of the pieces in which a registry sends the second half of its layer, and the pause
// between them.
const (
	layerPiece = 64 << 10
	layerPause = 25 * time.Millisecond
)

// noRegistry is an address of this machine's loopback at which nobody listens.
const noRegistry = "127.0.0.1:1"

func newRegistry(t testing.TB) *imageRegistry {
	t.Helper()
	if host := os.Getenv("DOCKER_HOST"); host != "" && !strings.HasPrefix(host, "unix://") {
		t.Skip("SKIPPED, the daemon is on another machine and cannot reach this machine's loopback")
	}
	r := &imageRegistry{asked: make(chan struct{}), content: map[string][]byte{}, types: map[string]string{}}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise) // Read never fails
	for name, content := range map[string][]byte{"noise": noise} {
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
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	put := func(v any, kind string) map[string]any {
		raw, ok := v.([]byte)
		if !ok {
			raw, _ = json.Marshal(v) // marshalling maps of strings never fails
		}
		r.content[sum(raw)], r.types[sum(raw)] = raw, kind
		return map[string]any{"mediaType": kind, "size": len(raw), "digest": sum(raw)}
	}
	config := put(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Env": []string{"PATH=/app/bin", "GREETING=hello"}, "Volumes": map[string]any{"/data": struct{}{}}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum(layer.Bytes())}},
	}, "application/vnd.docker.container.image.v1+json")
	manifest := put(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "config": config,
		"layers": []any{put(layer.Bytes(), "application/vnd.docker.image.rootfs.diff.tar")},
	}, "application/vnd.docker.distribution.manifest.v2+json")
	r.digest = manifest["digest"].(string)
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	return r
}

func (r *imageRegistry) host() string { return strings.TrimPrefix(r.server.URL, "http://") }

func (r *imageRegistry) serve(w http.ResponseWriter, in *http.Request) {
	if user, password, _ := in.BasicAuth(); r.user != "" && (user != r.user || password != r.password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.TrimPrefix(in.URL.Path, "/v2/"), "/")
	key := parts[len(parts)-1]
	switch {
	case in.URL.Path == "/v2/":
		return
	case len(parts) == 3 && parts[0] == "app" && parts[1] == "manifests" && key == "1":
		key = r.digest
		r.pulls.Add(1)
	}
	content, ok := r.content[key]
	if !ok || parts[0] != "app" {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		return
	}
	w.Header().Set("Content-Type", r.types[key])
	w.Header().Set("Docker-Content-Digest", key)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if in.Method == http.MethodHead {
		return
	}
	if strings.HasSuffix(r.types[key], "tar") {
		_, _ = w.Write(content[:1<<20]) // the client may have gone
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		r.once.Do(func() { close(r.asked) })
		if r.hold != nil {
			select {
			case <-r.hold:
			case <-in.Context().Done():
				return
			}
		}
		// The daemon reports progress every 512 KB, and at most once in 100 ms. So the layer is sent slowly.
		for content = content[1<<20:]; len(content) > layerPiece; content = content[layerPiece:] {
			_, _ = w.Write(content[:layerPiece])
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			time.Sleep(layerPause) //nolint:forbidigo // the daemon counts by its own clock
		}
	}
	_, _ = w.Write(content)
}

// testImages returns images that allow every name, with a docker folder of their own.
func testImages(t testing.TB, list ...string) *images {
	t.Helper()
	b := openBackend(t, map[string]any{"images": list})
	b.images.host.docker = credentialsFile(t.TempDir())
	return b.images
}

// discardImage removes an image when t has ended.
func discardImage(t testing.TB, i *images, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := cleanUp(context.Background())
		defer cancel()
		_ = i.daemon.removeImage(ctx, name) // the image may not have been pulled
	})
}

func TestAnImageIsPulledOnceForAllWhoWantIt(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.hold = make(chan struct{})
	i := testImages(t, "127.0.0.1:*/**")
	name := r.host() + "/app:1"
	discardImage(t, i, name)
	var wg, waiting sync.WaitGroup
	leaving, leave := context.WithCancelCause(t.Context())
	var told atomic.Int64
	for n := range 4 {
		waiting.Add(1)
		waits := sync.OnceFunc(waiting.Done)
		wg.Go(func() {
			defer waits()
			ctx := t.Context()
			if n == 0 {
				ctx = leaving
			}
			info, err := i.ensure(ctx, name, func(p executor.Progress) {
				waits()
				if p.Phase == executor.PhasePrepare && p.Unit == "bytes" && p.Total >= 2<<20 {
					told.Add(1)
				}
			})
			switch {
			case n == 0:
				if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "changed my mind") {
					t.Errorf("the caller whose ctx ended got %v", err)
				}
			case err != nil || info.Digest != r.digest || info.Path != "/app/bin" || len(info.Env) != 1 || len(info.Volumes) != 1:
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
	<-r.asked
	waiting.Wait() // each caller has joined the pull
	leave(executor.Errorf(executor.Unavailable, "changed my mind"))
	close(r.hold)
	wg.Wait()
	if n := r.pulls.Load(); n > 2 { // HEAD and GET
		t.Errorf("the manifest was requested %d times, want at most 2", n)
	}
	if told.Load() == 0 {
		t.Error("no progress was reported")
	}
	before := r.pulls.Load()
	i.forget(func() string { info, _ := i.ensure(t.Context(), name, func(executor.Progress) {}); return info.ID }())
	if _, err := i.ensure(t.Context(), name, func(executor.Progress) { t.Error("progress for an image that the daemon has") }); err != nil || r.pulls.Load() != before {
		t.Errorf("pulled again: %v", err)
	}
}

func TestAPullThatNobodyWaitsForEnds(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.hold = make(chan struct{})
	defer close(r.hold)
	i := testImages(t, "127.0.0.1:*/**")
	ctx, leave := context.WithCancelCause(t.Context())
	go func() {
		<-r.asked
		leave(executor.Errorf(executor.Unavailable, "changed my mind"))
	}()
	if _, err := i.ensure(ctx, r.host()+"/app:1", func(executor.Progress) {}); err == nil || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("got %v", err)
	}
	i.pulls.Wait() // hangs if the pull continues, because the registry does not answer
}

func TestWhyAnImageCannotBePulled(t *testing.T) {
	t.Parallel()
	open, closed := newRegistry(t), newRegistry(t)
	closed.user, closed.password = "someone", "secret"
	i := testImages(t, "127.0.0.1:*/**")
	for name, c := range map[string]struct {
		code executor.Code
		says string
	}{
		open.host() + "/app:2":   {executor.Invalid, "does not exist"},
		open.host() + "/other:1": {executor.Invalid, "does not exist"},
		closed.host() + "/app:1": {executor.Denied, "docker login " + closed.host()},
		noRegistry + "/app:1":    {executor.Unavailable, "connection refused"},
	} {
		_, err := i.ensure(t.Context(), name, func(executor.Progress) {})
		if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s: %v", name, executor.CodeOf(err), err)
		}
		if e, ok := errors.AsType[*executor.Error](err); !ok || len(e.Fields) != 1 || e.Fields[0].Field != "docker_image" {
			t.Errorf("%s: the error does not name the field: %v", name, err)
		}
	}
}

func TestARegistryOutOfReachFailsTheExecutionAndNotTheBackend(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	f := fails(t, b, executor.Spec{Code: "1", Image: noRegistry + "/app:1"})
	if f.Code != executor.Unavailable || f.Field != "docker_image" || f.Phase != executor.PhasePrepare {
		t.Errorf("%+v", f)
	}
}

func TestCredentialsComeFromTheDockerCommandsSettings(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\nread host\necho '{\"ServerURL\":\"'$host'\",\"Username\":\"someone\",\"Secret\":\"secret\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-pyexectest"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t)
	r.user, r.password = "someone", "secret"
	i := testImages(t, "127.0.0.1:*/**")
	name := r.host() + "/app:1"
	discardImage(t, i, name)
	if _, err := i.ensure(t.Context(), name, nothing); executor.CodeOf(err) != executor.Denied {
		t.Fatalf("without credentials: %v", err)
	}
	for kind, settings := range map[string]any{
		"auths":       map[string]any{"auths": map[string]any{r.host(): map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("someone:secret"))}}},
		"credHelpers": map[string]any{"credHelpers": map[string]string{r.host(): "pyexectest"}},
		"credsStore":  map[string]any{"credsStore": "pyexectest"},
	} {
		raw, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(string(i.host.docker), "config.json"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := i.host.docker.of(r.host()); err != nil || got.Username != "someone" || got.Password != "secret" {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
	if info, err := i.ensure(t.Context(), name, nothing); err != nil || info.Digest != r.digest {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestTheReasonOfAFailedPullDecidesItsCode(t *testing.T) {
	t.Parallel()
	r, err := imagename.ParseRef("registry.example/app:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		said     string
		loggedIn bool
		code     executor.Code
		says     string
	}{
		{"denied: requested access to the resource is denied", false, executor.Denied, "docker login registry.example"},
		{"denied: requested access to the resource is denied", true, executor.Denied, "the credentials may not give access"},
		{"manifest unknown", false, executor.Invalid, "does not exist"},
		{"toomanyrequests: unauthorized clients have a rate limit", false, executor.Unavailable, "is busy"},
		{"write /var/lib/x not found: no space left on device", false, executor.Unavailable, "no space for"},
		{strings.Repeat("long ", 1000), false, executor.Unavailable, "could not be pulled"},
	} {
		err := pullError(r, c.said, c.loggedIn)
		if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || !ofField(err, "docker_image") || len(err.Error()) > 1500 {
			t.Errorf("%q, logged in %v: %v", requirements.Shorten(c.said, 60), c.loggedIn, err)
		}
	}
}

func TestTheProgressOfAPullIsTheSumOfItsLayers(t *testing.T) {
	t.Parallel()
	var last executor.Progress
	p := newPullProgress("pulling app", func(e executor.Progress) { last = e })
	for _, step := range []struct {
		line        pullLine
		done, total int64
	}{
		{pullLine{"", "Pulling from app", 0, 0}, 0, 0},
		{pullLine{"a", "Downloading", 10, 100}, 10, 100},
		{pullLine{"b", "Downloading", 7, 0}, 17, 107}, // the registry does not say how much there is
		{pullLine{"a", "Download complete", 0, 0}, 107, 107},
		{pullLine{"a", "Extracting", 3, 100}, 107, 107},
		{pullLine{"c", "Pull complete", 0, 0}, 107, 107}, // it was there
	} {
		p.line(step.line)
		if last.Done != step.done || last.Total != step.total || last.Message != "pulling app" {
			t.Errorf("%+v: %+v, want %d of %d", step.line, last, step.done, step.total)
		}
	}
}

func TestTheCredentialsOfDockerHubHaveTheirOwnKey(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	const settings = `{"auths": {"https://index.docker.io/v1/": {"auth": "c29tZW9uZTpzZWNyZXQ="}, "token.example": {"identitytoken": "t"}}}`
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	for registry, want := range map[string]string{"docker.io": "someone secret ", "token.example": "  t", "other.example": "  "} {
		got, err := credentialsFile(folder).of(registry)
		if said := got.Username + " " + got.Password + " " + got.IdentityToken; err != nil || said != want || want == "  " && got != (types.AuthConfig{}) {
			t.Errorf("%s: %+v, %v", registry, got, err)
		}
	}
}

func TestAnErrorOfARegistryShowsNoCredentials(t *testing.T) {
	t.Parallel()
	r, err := imagename.ParseRef("app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := pullError(r, "proxy http://someone:secret@proxy:3128 is broken", false); strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
