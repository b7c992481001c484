package settings

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestABackendThatIsNamedNeedsNoSection(t *testing.T) {
	sections := map[string]json.RawMessage{"uv": json.RawMessage("{}"), "docker": json.RawMessage(`{"default_image":""}`)}
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"in place of the default":       {"backend: docker\n", []string{"docker"}},
		"beside what is listed":         {"backend: docker\nbackends: {uv: {}}\n", []string{"docker", "uv"}},
		"and is not overwritten":        {"backend: docker\nbackends: {docker: {default_image: x}}\n", []string{"docker"}},
		"nor added where none is asked": {"backends: {uv: {}}\n", []string{"uv"}},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Options{File: path, Sections: sections})
		if names := slices.Sorted(maps.Keys(got.Backends)); err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s: %v, %v", name, names, err)
		}
	}
	t.Setenv("PYEXEC_BACKEND", "docker")
	t.Setenv("PYEXEC_BACKENDS_DOCKER_DEFAULT_IMAGE", "3.12")
	got, err := Load(Options{Sections: sections})
	if err != nil || len(got.Backends) != 1 || string(got.Backends["docker"].Options) != `{"default_image":"3.12"}` {
		t.Errorf("%v, %v", got.Backends, err)
	}
	t.Setenv("PYEXEC_BACKEND", "frobnicate")
	if _, err := Load(Options{Sections: sections}); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("an unknown one: %v", err)
	}
}

func TestAVariableReachesEveryKeyOfASection(t *testing.T) {
	sections := map[string]json.RawMessage{"docker": json.RawMessage(`{"default_image":"","images":["python"],"pool":{"min_idle":2,"deep":{"x_y":1}},"pool_big":{"n":1},"pool_size":1}`)}
	for name, value := range map[string]string{
		"POOL_MIN_IDLE": "0", "POOL_DEEP_X_Y": "7", "POOL_SIZE": "3", "POOL_BIG_N": "9", "IMAGES": "a, b:1", "DEFAULT_IMAGE": "3.12", "NOT_THERE": "5", "POOL_WHAT": "true",
	} {
		t.Setenv("PYEXEC_BACKENDS_DOCKER_"+name, value)
	}
	t.Setenv("PYEXEC_BACKEND", "docker")
	const want = `{"default_image":"3.12","images":["a","b:1"],"not_there":5,"pool":{"deep":{"x_y":7},"min_idle":0},"pool_big":{"n":9},"pool_size":3,"pool_what":true}`
	for range 100 { // maps have no order
		if got, err := Load(Options{Sections: sections}); err != nil || string(got.Backends["docker"].Options) != want {
			t.Fatalf("%s, %v, want %s", got.Backends["docker"].Options, err, want)
		}
	}
	t.Setenv("PYEXEC_BACKENDS_DOCKER_IMAGES", `["c, d"]`)
	if got, err := Load(Options{Sections: sections}); err != nil || !strings.Contains(string(got.Backends["docker"].Options), `"images":["c, d"]`) {
		t.Errorf("%s, %v", got.Backends["docker"].Options, err)
	}
}
