package apijson

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// throughJSON returns what the other side reads of v.
func throughJSON[T any](t *testing.T, v any) (out T) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fill sets v, and what it holds, to a value that JSON keeps: whole seconds and megabytes.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case time.Duration:
		v.SetInt(int64(3 * time.Second))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case executor.Network:
		v.SetString(string(executor.NetworkOff))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("word")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(5 << 20)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("no value of %s", v.Type())
	}
}

// eachField calls check with copies of T: an empty one, and one for each field, in which only that field is set. Fields of a struct
// in T are set one by one too.
func eachField[T any](t *testing.T, check func(t *testing.T, v T)) {
	t.Helper()
	t.Run("nothing", func(t *testing.T) { check(t, *new(T)) })
	var walk func(of reflect.Type, index []int, name string)
	walk = func(of reflect.Type, index []int, name string) {
		for i := range of.NumField() {
			f := of.Field(i)
			at := append(slices.Clone(index), i)
			if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
				walk(f.Type, at, name+f.Name+".")
				continue
			}
			t.Run(name+f.Name, func(t *testing.T) {
				var v T
				fill(t, reflect.ValueOf(&v).Elem().FieldByIndex(at))
				check(t, v)
			})
		}
	}
	walk(reflect.TypeFor[T](), nil, "")
}

func TestEveryFieldOfASpecCrosses(t *testing.T) {
	t.Parallel()
	eachField(t, func(t *testing.T, s executor.Spec) {
		t.Helper()
		if got := ToSpec(throughJSON[pyexec.Spec](t, SpecOf(s))); !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v, want %+v", got, s)
		}
	})
	for _, s := range []executor.Spec{
		{Network: executor.NetworkOn},
		{Limits: executor.Limits{Timeout: executor.TimeoutMaximum}},
	} {
		if got := ToSpec(throughJSON[pyexec.Spec](t, SpecOf(s))); !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v, want %+v", got, s)
		}
	}
}

// A limit or a time that was asked for never becomes zero, which asks for the default.
func TestASmallNumberDoesNotBecomeTheDefault(t *testing.T) {
	t.Parallel()
	tiny := 1e-12
	s := ToSpec(pyexec.Spec{SampleIntervalSeconds: tiny, Config: pyexec.Config{TimeoutSeconds: &tiny, KillGraceSeconds: tiny}})
	if s.SampleInterval != 1 || s.Limits.Timeout != 1 || s.Limits.KillGrace != 1 {
		t.Errorf("%+v", s)
	}
	if c := SpecOf(executor.Spec{Limits: executor.Limits{MemoryBytes: 1, DiskBytes: mb + 1}}).Config; c.MemoryMB != 1 || c.DiskMB != 2 {
		t.Errorf("%+v", c)
	}
}

func TestEveryFieldOfARequestForASessionCrosses(t *testing.T) {
	t.Parallel()
	eachField(t, func(t *testing.T, s pyexec.SessionSpec) {
		t.Helper()
		got := SessionSpecOf(ToNewSession(throughJSON[pyexec.SessionSpec](t, s)))
		if !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v, want %+v", got, s)
		}
	})
}

func TestEveryFieldOfABackendCrosses(t *testing.T) {
	t.Parallel()
	eachField(t, func(t *testing.T, i executor.Info) {
		t.Helper()
		list := throughJSON[struct{ Backends []pyexec.Backend }](t, BackendsOf([]executor.Info{i}))
		if len(list.Backends) != 1 {
			t.Fatalf("%+v", list)
		}
		got, err := ToInfo(list.Backends[0])
		if err != nil {
			t.Fatal(err)
		}
		i.Capabilities.Languages, i.Capabilities.PythonVersions = notNil(i.Capabilities.Languages), notNil(i.Capabilities.PythonVersions)
		i.Capabilities.PythonDownloads = notNil(i.Capabilities.PythonDownloads)
		if !reflect.DeepEqual(got, i) {
			t.Errorf("got %+v, want %+v", got, i)
		}
	})
	if _, err := ToInfo(pyexec.Backend{Name: "b", Capabilities: map[string]any{"memory": "much"}}); executor.CodeOf(err) != executor.Internal {
		t.Errorf("%v", err)
	}
}

// A list without entries is [], not null.
func TestAnEmptyListIsAList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list any
		want string
	}{
		"executions": {PageOf(nil, ""), `{"executions":[],"next":null}`},
		"sessions":   {SessionsOf(nil), `{"sessions":[]}`},
		"files":      {FilesOf(nil), `{"files":[]}`},
		"variables":  {VariablesOf(nil), `{"variables":[]}`},
		"backends":   {BackendsOf(nil), `{"backends":[]}`},
	} {
		if raw, err := json.Marshal(c.list); err != nil || string(raw) != c.want {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	if got := FilesOf([]executor.File{{Path: "a", ModTime: when}}).Files; len(got) != 1 || got[0].Path != "a" || got[0].ModTime != when.UTC() {
		t.Errorf("%+v", got)
	}
	if got := PageOf([]executor.Execution{{ID: "exe"}}, "next"); len(got.Executions) != 1 || got.Executions[0].ExecutionID != "exe" || got.Next != "next" {
		t.Errorf("%+v", got)
	}
}

func TestTheLanguageOfASessionIsAlsoThatOfItsSpec(t *testing.T) {
	t.Parallel()
	shell := executor.Spec{Language: executor.LanguageShell}
	for _, s := range []executor.Session{{Language: executor.LanguageShell}, {Spec: shell}} {
		if got := SessionSpecOf(s).Language; got != string(executor.LanguageShell) {
			t.Errorf("%+v asks for the language %q", s, got)
		}
	}
}
