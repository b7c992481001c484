package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	dockerbackend "github.com/python-executor/python-executor/plugins/backend-docker"
	nomadbackend "github.com/python-executor/python-executor/plugins/backend-nomad"
)

// samples walks the folder: a new file is a new case.
func samples(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("../configs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[filepath.Base(path)] = string(raw)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

func TestEverySampleConfigurationLoads(t *testing.T) {
	for name := range samples(t) {
		t.Run(name, func(t *testing.T) {
			c, err := settings.Load(settings.Options{File: filepath.Join("../configs", name), Sections: bundled().Sections()})
			if err != nil {
				t.Fatal(err)
			}
			for backend, b := range c.Backends {
				_, p, ok := bundled().ByType(b.TypeOr(backend))
				if !ok {
					t.Fatalf("backends.%s is not bundled", backend)
				}
				if err := p.Check(backend, b.Options); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestEveryBackendHasASample(t *testing.T) {
	have := samples(t)
	for typ := range bundled().Sections() {
		text, ok := have[typ+".yaml"]
		if !ok || !strings.Contains(text, "\nbackends:\n  "+typ+":\n") {
			t.Errorf("configs has no %s.yaml with a section backends.%s", typ, typ)
		}
	}
}

func TestTheDefaultSampleIsTheDefaults(t *testing.T) {
	c, err := settings.Load(settings.Options{File: "../configs/default.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.HTTP.Tokens = []config.Token{} // the file says so in words
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	text := samples(t)["default.yaml"]
	for _, key := range settings.Keys() {
		last := key[strings.LastIndex(key, ".")+1:]
		if !strings.Contains(text, " "+last+":") && !strings.Contains(text, "\n"+last+":") {
			t.Errorf("default.yaml does not mention %s", key)
		}
	}
}

func TestTheUVSampleIsTheDefaultsOfTheBackend(t *testing.T) {
	c, err := settings.Load(settings.Options{File: "../configs/uv.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	_, p, _ := bundled().ByType("uv")
	var got, want map[string]any
	if err := json.Unmarshal(p.Filled(c.Backends["uv"].Options), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p.Filled(nil), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	text := samples(t)["uv.yaml"]
	for key := range want {
		if !strings.Contains(text, " "+key+":") {
			t.Errorf("uv.yaml does not mention %s", key)
		}
	}
}

// Of the Docker and Nomad backends it is the page that explains every key, and the sample has the few that most set.
func TestEveryKeyOfDockerIsExplained(t *testing.T) {
	explained(t, "../docs/docker.md", "backends.docker.", dockerbackend.Filled(nil))
}

func TestEveryKeyOfNomadIsExplained(t *testing.T) {
	explained(t, "../docs/nomad.md", "backends.nomad.", nomadbackend.Filled(nil))
}

// explained fails t for each key of a section that a page does not have.
func explained(t *testing.T, file, at string, section json.RawMessage) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var look func(at string, section json.RawMessage)
	look = func(at string, section json.RawMessage) {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(section, &keys); err != nil {
			t.Fatal(err)
		}
		for key, value := range keys {
			switch {
			case !regexp.MustCompile("[^a-z_]" + key + "[:`]").Match(page):
				t.Errorf("%s does not explain %s%s", file, at, key)
			case string(value) == "null":
				t.Errorf("%s%s has no default, so that a variable's list is not taken for one", at, key)
			case value[0] == '{':
				look(at+key+".", value)
			}
		}
	}
	look(at, section)
}
