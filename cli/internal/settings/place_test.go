package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAnErrorOfABackendSaysWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "backends:\n  uv:\n    isolaton: auto\n    image_map: {b: x,\n      a.b:1: y}\n    list: [\n      a, b]\n  docker:\nengine: {max_queued: 1}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYEXEC_BACKENDS_UV_POOL_MAX", "-1")
	t.Setenv("PYEXEC_BACKENDS_UV_STRT", "fork")
	o := Options{File: path, Sections: map[string]json.RawMessage{"uv": json.RawMessage(`{"pool":{"max":1}}`)}}
	for field, c := range map[string][2]string{
		"backends.uv.isolaton":        {"unknown key: did you mean backends.uv.isolation?", "unknown key (" + path + ":3): did you mean backends.uv.isolation?"},
		"backends.uv.strt":            {"unknown key; known are start", "unknown key (PYEXEC_BACKENDS_UV_STRT); known are start"},
		"backends.uv.image_map.a.b:1": {`must be z (got "y")`, `must be z (got "y", in ` + path + ":5)"},
		"backends.uv.list[1]":         {`must be z (got "b"): did you mean z?`, `must be z (got "b", in ` + path + ":7): did you mean z?"},
		"backends.uv.pool.max":        {"must be at least min_idle (which is 0)", "must be at least min_idle (which is 0) (in PYEXEC_BACKENDS_UV_POOL_MAX)"},
		"backends.uv.cache_dir":       {"must be an absolute path", "must be an absolute path"}, // a default
		"backends.docker":             {`must be a type (got "docker")`, `must be a type (got "docker", in ` + path + ":8)"},
		"engine.max_queued":           {`must be less (got "1")`, `must be less (got "1")`}, // not of a backend
	} {
		plain := &executor.Error{Code: executor.Invalid, Message: field + ": " + c[0], Fields: []executor.FieldError{{Field: field, Message: c[0]}}}
		err := Placed(o, plain)
		e, ok := errors.AsType[*executor.Error](err)
		if !ok || err.Error() != field+": "+c[1] || !reflect.DeepEqual(e.Fields, []executor.FieldError{{Field: field, Message: c[1]}}) || e.Code != executor.Invalid {
			t.Errorf("got %+v, want %s", err, c[1])
		}
		other := errors.New("other")
		err = Placed(o, errors.Join(fmt.Errorf("backend uv: %w", plain), other))
		if want := "backend uv: " + field + ": " + c[1] + "\nother"; err.Error() != want || !errors.Is(err, plain) || !errors.Is(err, other) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if err := Placed(o, nil); err != nil {
		t.Error(err)
	}
}
