package dockerbackend

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

func TestTheDoctorSaysWhatIsWrongWithADaemon(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Host = "unix://" + filepath.Join(t.TempDir(), "nobody")
	list := Doctor(t.Context(), sectionOf(t, c))
	if f := list[len(list)-1]; f.Level != backend.LevelError || f.Topic != "docker" || !strings.Contains(f.Remedy, "start Docker") {
		t.Errorf("no daemon: %+v", list)
	}
	_, err := newBackend(t.Context(), plugin.Configure{Name: "docker", Options: sectionOf(t, c)}, program{})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), c.Host) || !strings.Contains(err.Error(), noDaemon) {
		t.Errorf("a backend without a daemon: %v", err)
	}
	c.Network = "host"
	if list := Doctor(t.Context(), sectionOf(t, c)); len(list) != 1 || list[0].Level != backend.LevelError || !strings.Contains(list[0].Message, "network") {
		t.Errorf("a configuration that is refused: %+v", list)
	}
}

func TestTheDoctorLooksAtTheDaemon(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Host, c.DefaultImage = dockertest.Host(t), dockertest.Python(t)
	found := map[string]backend.Finding{}
	for _, f := range Doctor(t.Context(), sectionOf(t, c)) {
		found[f.Topic] = f
	}
	for _, topic := range []string{"docker", "image", "memory", "pids", "cpu"} {
		if found[topic].Level != backend.LevelOK {
			t.Errorf("%s: %+v", topic, found)
		}
	}
	c.DefaultImage, c.Runtime = "no-such-image:1", "no-such-runtime"
	list := Doctor(t.Context(), sectionOf(t, c))
	for topic, level := range map[string]backend.Level{"image": backend.LevelWarn, "configuration": backend.LevelError} {
		if !slices.ContainsFunc(list, func(f backend.Finding) bool { return f.Topic == topic && f.Level == level }) {
			t.Errorf("%s: %+v", topic, list)
		}
	}
}

func TestTheDoctorSaysThatAnImageWillBePulled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		level  backend.Level
	}{{http.StatusOK, backend.LevelOK}, {http.StatusNotFound, backend.LevelWarn}, {http.StatusInternalServerError, backend.LevelError}} {
		d := toyDaemon(t, func(*http.Request, string) (int, string) { return c.status, `{"Id":"i","message":"m"}` })
		if f := imageFinding(t.Context(), d, Default()); f.Topic != "image" || f.Level != c.level {
			t.Errorf("%d: %+v", c.status, f)
		}
	}
}

func TestInfoWarnsOfWhatThisDaemonLacks(t *testing.T) {
	t.Parallel()
	warns := func(b *Backend, words string) bool {
		return slices.ContainsFunc(b.warnings(), func(w string) bool { return strings.Contains(w, words) })
	}
	trusting, err := imagename.NewList([]string{"python"}, "")
	if err != nil {
		t.Fatal(err)
	}
	secret, open := prepareSettings{netrc: "file", trust: "trusted_images"}, prepareSettings{trust: "trusted_images"}
	for name, c := range map[string]struct {
		memory, swap    bool
		images          *images
		swaps, untrusts bool
	}{
		"everything is there":          {memory: true, swap: true, images: &images{settings: open}},
		"swap cannot be limited":       {memory: true, images: &images{settings: open}, swaps: true},
		"memory cannot be limited":     {images: &images{settings: open}},
		"no image gets credentials":    {memory: true, swap: true, images: &images{settings: secret}, untrusts: true},
		"some images have credentials": {memory: true, swap: true, images: &images{settings: secret, trusted: trusting}},
	} {
		b := &Backend{networks: &networks{}, images: c.images, can: executor.Capabilities{Memory: c.memory}}
		b.facts.SwapLimit = c.swap
		if warns(b, "programs may use swap") != c.swaps || warns(b, "trusted_images") != c.untrusts || warns(b, "memory_mb is not enforced") == c.memory {
			t.Errorf("%s: %q", name, b.warnings())
		}
	}
}

// sectionOf returns the section of a configuration.
func sectionOf(t *testing.T, c Config) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
