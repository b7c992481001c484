package uvbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestTheDefaultConfigurationIsValid(t *testing.T) {
	t.Parallel()
	if err := Default().validate("uv"); err != nil {
		t.Error(err)
	}
	if err := (Config{}).validate("uv"); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
}

func TestAWrongSettingIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, section, field, says string }{
		{"an unknown key", `{"speed": 1}`, "backends.mine.speed", "unknown key"},
		{"a key of the wrong type", `{"cache_bytes": "20 GiB"}`, "backends.mine.cache_bytes", "whole number"},
		{"an unknown isolation", `{"isolation": "chroot"}`, "backends.mine.isolation", "auto, namespaces or none"},
		{"an unknown network", `{"network": "bridge"}`, "backends.mine.network", "private or host"},
		{"a network of its own without isolation", `{"isolation": "none", "network": "private"}`, "backends.mine.network", "host"},
		{"an unknown start", `{"start": "spawn"}`, "backends.mine.start", "fork or exec"},
		{"a preimport that is no module", `{"preimport": ["numpy", "numpy; x"]}`, "backends.mine.preimport[1]", "name of a module"},
		{"an open address without a length", `{"network_open": ["10.0.0.0/8", "10.1.2.3"]}`, "backends.mine.network_open[1]", "like 10.1.0.0/16"},
		{"an open range of the host's network", `{"network": "host", "network_open": ["10.0.0.0/8"]}`, "backends.mine.network_open", "empty"},
		{"a relative writable folder", `{"writable_directories": ["/srv", "data"]}`, "backends.mine.writable_directories[1]", "absolute"},
		{"a writable folder with a detour", `{"writable_directories": ["/srv/../etc"]}`, "backends.mine.writable_directories[0]", "clean"},
		{"a preimport without a last name", `{"preimport": ["numpy."]}`, "backends.mine.preimport[0]", "name of a module"},
		{"too many warm sessions", `{"warm_sessions": 17}`, "backends.mine.warm_sessions", "-1 (none) to 16"},
		{"less than no warm sessions", `{"warm_sessions": -2}`, "backends.mine.warm_sessions", "-1 (none) to 16"},
		{"a range with root in it", `{"run_as": "0-10"}`, "backends.mine.run_as", "0 < FIRST"},
		{"a range without numbers", `{"run_as": "many"}`, "backends.mine.run_as", "FIRST-LAST"},
		{"a reversed range", `{"run_as": "10-5"}`, "backends.mine.run_as", "FIRST <= LAST"},
		{"a relative folder", `{"work_dir": "work"}`, "backends.mine.work_dir", "absolute"},
		{"the root folder", `{"cache_dir": "/"}`, "backends.mine.cache_dir", "below /"},
		{"a negative size", `{"cache_bytes": -1}`, "backends.mine.cache_bytes", "> 0"},
		{"an index that is a path", `{"index_url": "/srv/simple"}`, "backends.mine.index_url", "http"},
		{"an image mapped to no version", `{"image_map": {"my/image": "latest"}}`, "backends.mine.image_map.my/image", "minor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig("mine", json.RawMessage(c.section))
			e, ok := errors.AsType[*executor.Error](err)
			if !ok || e.Code != executor.Invalid {
				t.Fatalf("got %v, want an invalid error", err)
			}
			if len(e.Fields) != 1 || e.Fields[0].Field != c.field || !strings.Contains(e.Fields[0].Message, c.says) {
				t.Errorf("fields are %+v, want %s with %q", e.Fields, c.field, c.says)
			}
		})
	}
}

func TestNobodyElseOwnsAParentOfTheCache(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		uid       int
		xdg, home string
		want      string
	}{
		{"root", 0, "/x", "/root", "/var/cache/python-executor"},
		{"a cache folder", 1000, "/x", "/home/me", "/x/python-executor/uv"},
		{"a home", 1000, "relative", "/home/me", "/home/me/.cache/python-executor/uv"},
		{"neither", 1000, "", "", filepath.Join(os.TempDir(), "python-executor-uv-1000")},
	} {
		if got := cacheDirOf(c.uid, c.xdg, c.home); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTheNetworkIsPrivateWhereProgramsAreIsolated(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{`{}`: NetworkPrivate, `{"isolation": "none"}`: NetworkHost, `{"network": "host"}`: NetworkHost} {
		c, err := parseConfig("uv", json.RawMessage(section))
		if err != nil || c.Network != want {
			t.Errorf("%s: %q, %v", section, c.Network, err)
		}
		again, err := parseConfig("uv", Filled(json.RawMessage(section)))
		if err != nil || again.Network != want {
			t.Errorf("%s, filled: %q, %v", section, again.Network, err)
		}
	}
}

func TestEveryNumberHasADefaultAndMustNotBeNegative(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"cache_bytes", "prepare_memory_bytes", "prepare_pids", "prepare_seconds", "environment_bytes", "environment_files", "compile_bytes"} {
		if _, err := parseConfig("uv", fmt.Appendf(nil, `{%q: -1}`, key)); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "backends.uv."+key) {
			t.Errorf("%s of -1: %v", key, err)
		}
		c := Config{}.withDefaults()
		if value := c.positive()[key]; value == nil || *value <= 0 {
			t.Errorf("%s has no default", key)
		}
	}
}

func TestAFilledSectionHasItsWorkFolderInItsCacheFolder(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		`{"cache_dir": "/srv/cache"}`:                       "/srv/cache/work",
		`{"cache_dir": "/srv/cache", "network": "host"}`:    "/srv/cache/work",
		`{"cache_dir": "/srv/cache", "work_dir": "/srv/w"}`: "/srv/w",
	} {
		var c Config
		if err := json.Unmarshal(Filled(json.RawMessage(section)), &c); err != nil || c.WorkDir != want || c.Network == "" {
			t.Errorf("%s: the work folder is %s, the network %q, %v", section, c.WorkDir, c.Network, err)
		}
	}
}

// TestTheUIDsOfASectionAreChecked has a range that only this machine's rules forbid.
func TestTheUIDsOfASectionAreChecked(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t)
	section := fmt.Appendf(nil, `{"run_as": "1-100", "cache_dir": %q}`, filepath.Join(t.TempDir(), "cache"))
	if err := Check("mine", section); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "backends.mine.run_as") {
		t.Errorf("Check: %v", err)
	}
	if f := Doctor(t.Context(), section); len(f) != 1 || f[0].Level != backend.LevelError || !strings.Contains(f[0].Message, "backends.uv.run_as") {
		t.Errorf("the doctor finds %+v", f)
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	t.Parallel()
	_, err := parseConfig("uv", json.RawMessage(`{"a": 1, "b": 2}`))
	if e, ok := errors.AsType[*executor.Error](err); !ok || len(e.Fields) != 2 {
		t.Errorf("got %v, want two fields", err)
	}
}

func TestAnEmptySectionTakesTheDefaults(t *testing.T) {
	t.Parallel()
	for _, section := range []string{"", "{}", "null"} {
		c, err := parseConfig("uv", json.RawMessage(section))
		if err != nil || c.CacheBytes != 20<<30 || c.WorkDir == "" || c.Isolation != IsolationAuto {
			t.Errorf("section %q became %+v, %v", section, c, err)
		}
	}
}
