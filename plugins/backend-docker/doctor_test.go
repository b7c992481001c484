package dockerbackend

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

func TestTheDoctorSaysWhatIsWrongWithADaemon(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Host = "unix://" + filepath.Join(t.TempDir(), "nobody")
	list := Doctor(t.Context(), c)
	if f := list[len(list)-1]; f.Level != LevelError || f.Topic != "docker" || !strings.Contains(f.Remedy, "start Docker") {
		t.Errorf("no daemon: %+v", list)
	}
	c.Network = "host"
	if list := Doctor(t.Context(), c); len(list) != 1 || list[0].Level != LevelError || !strings.Contains(list[0].Message, "network") {
		t.Errorf("a configuration that is refused: %+v", list)
	}
}

func TestTheDoctorLooksAtTheDaemon(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Host, c.DefaultImage = dockertest.Host(t), dockertest.Python(t)
	found := map[string]Finding{}
	for _, f := range Doctor(t.Context(), c) {
		found[f.Topic] = f
	}
	for _, topic := range []string{"docker", "image", "memory", "pids", "cpu"} {
		if found[topic].Level != LevelOK {
			t.Errorf("%s: %+v", topic, found)
		}
	}
	c.DefaultImage, c.Runtime = "no-such-image:1", "no-such-runtime"
	list := Doctor(t.Context(), c)
	for topic, level := range map[string]Level{"image": LevelWarn, "configuration": LevelError} {
		if !slices.ContainsFunc(list, func(f Finding) bool { return f.Topic == topic && f.Level == level }) {
			t.Errorf("%s: %+v", topic, list)
		}
	}
}
