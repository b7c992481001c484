package executor_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// fill sets every field of v to something that is not zero, so that a field which Clone forgets shows.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 4))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(7)
	default:
		panic(fmt.Sprintf("fill: %s", v.Type()))
	}
}

// shared names the first pointer, slice or map that a and b have in common.
func shared(path string, a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			return path
		}
		if a.Kind() == reflect.Pointer {
			return shared(path, a.Elem(), b.Elem())
		}
		if a.Kind() == reflect.Map {
			for _, key := range a.MapKeys() {
				if s := shared(path+"[]", a.MapIndex(key), b.MapIndex(key)); s != "" {
					return s
				}
			}
			return ""
		}
		for i := range a.Len() {
			if s := shared(path+"[]", a.Index(i), b.Index(i)); s != "" {
				return s
			}
		}
	case reflect.Struct:
		if a.Type().PkgPath() == "time" {
			return ""
		}
		for i := range a.NumField() {
			if s := shared(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); s != "" {
				return s
			}
		}
	default:
	}
	return ""
}

func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, original, clone any) {
		t.Helper()
		if !reflect.DeepEqual(original, clone) {
			t.Errorf("the clone differs:\n%+v\n%+v", original, clone)
		}
		if s := shared("", reflect.ValueOf(original), reflect.ValueOf(clone)); s != "" {
			t.Errorf("%T%s is shared", original, s)
		}
	}
	var r executor.Record
	fill(reflect.ValueOf(&r).Elem())
	check(t, r, r.Clone())
	var session executor.SessionRecord
	fill(reflect.ValueOf(&session).Elem())
	check(t, session, session.Clone())
	for _, body := range []executor.Body{
		executor.Queued{}, executor.Progress{}, executor.Started{}, executor.Output{}, executor.Display{},
		executor.Finished{}, executor.Unknown{},
	} {
		v := reflect.New(reflect.TypeOf(body))
		fill(v.Elem())
		e := executor.Event{Seq: 1, Body: v.Elem().Interface().(executor.Body)} //nolint:forcetypeassert // made from a Body
		clone := e.Clone()
		check(t, e.Body, clone.Body)
	}
}
