package executor

import (
	"reflect"
	"slices"
	"testing"
)

// TestFieldsNamesEveryField sets one field of a Spec after the other, and wants its row in Fields to say so, alone.
func TestFieldsNamesEveryField(t *testing.T) {
	t.Parallel()
	if i := slices.IndexFunc(fieldsOf(Spec{}), func(f SpecField) bool { return f.Set }); i >= 0 {
		t.Errorf("a Spec without fields sets %s", fieldsOf(Spec{})[i].Name)
	}
	var rows []string
	var walk func(of reflect.Type, index []int, name string)
	walk = func(of reflect.Type, index []int, name string) {
		for i := range of.NumField() {
			at, name := append(slices.Clone(index), i), name+of.Field(i).Name
			if of.Field(i).Type == reflect.TypeFor[Limits]() {
				walk(of.Field(i).Type, at, name+".")
				continue
			}
			var s Spec
			field := reflect.ValueOf(&s).Elem().FieldByIndex(at)
			switch field.Kind() {
			case reflect.String:
				field.SetString("x")
			case reflect.Bool:
				field.SetBool(true)
			case reflect.Int64:
				field.SetInt(-1)
			case reflect.Slice:
				field.Set(reflect.MakeSlice(field.Type(), 1, 1))
			case reflect.Map:
				field.Set(reflect.MakeMap(field.Type()))
				field.SetMapIndex(reflect.ValueOf("K"), reflect.ValueOf("v"))
			case reflect.Pointer:
				field.Set(reflect.New(field.Type().Elem()))
			default:
				t.Fatalf("%s is a %s, which this test cannot set", name, field.Kind())
			}
			var set []string
			for _, f := range fieldsOf(s) {
				if f.Set {
					set = append(set, f.Name)
				}
			}
			if len(set) != 1 || slices.Contains(rows, set[0]) {
				t.Errorf("with %s alone, Fields has %q, want one row of its own", name, set)
			}
			rows = append(rows, set...)
		}
	}
	walk(reflect.TypeFor[Spec](), nil, "")
	if all := fieldsOf(Spec{}); len(rows) != len(all) {
		t.Errorf("%d rows for %d fields", len(all), len(rows))
	}
}

func fieldsOf(s Spec) []SpecField {
	fields := s.Fields()
	return fields[:]
}
