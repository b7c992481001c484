package dockerbackend

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

func TestTheDoctorSaysWhatIsWrongWithADaemon(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Host = "unix://" + filepath.Join(t.TempDir(), "nobody")
	list := Doctor(t.Context(), sectionOf(t, c))
	if f := list[len(list)-1]; f.Level != backend.LevelError || f.Topic != "docker" || !strings.Contains(f.Remedy, "start Docker") {
		t.Errorf("no daemon: %+v", list)
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

// sectionOf returns the section of a configuration.
func sectionOf(t *testing.T, c Config) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
