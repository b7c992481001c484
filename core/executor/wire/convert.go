package wire

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A type of the contract and its message have the same fields: the names differ in capitals only. to and from copy them. A
// field that only one of both has does not cross. A field of the contract that is missing in its message fails
// TestEveryFieldOfTheContractCrosses.

// to returns the message of type M that stands for v.
func to[M, T any](v T) *M {
	m := new(M)
	copierOf(reflect.TypeFor[M](), reflect.TypeFor[T]())(reflect.ValueOf(m).Elem(), reflect.ValueOf(&v).Elem())
	return m
}

// from returns what m stands for: the zero value for nil.
func from[T, M any](m *M) (v T) {
	if m != nil {
		copierOf(reflect.TypeFor[T](), reflect.TypeFor[M]())(reflect.ValueOf(&v).Elem(), reflect.ValueOf(m).Elem())
	}
	return v
}

// copier copies src to dst, which is zero.
type copier func(dst, src reflect.Value)

// copiers has a copier for each pair of types that has crossed.
var copiers sync.Map // of [2]reflect.Type

// copierOf panics if there is no copier: the contract has a type that no message can carry.
func copierOf(dst, src reflect.Type) copier {
	if c, ok := copiers.Load([2]reflect.Type{dst, src}); ok {
		return c.(copier) //nolint:forcetypeassert // the map's only type
	}
	c := newCopier(dst, src)
	copiers.Store([2]reflect.Type{dst, src}, c)
	return c
}

var (
	durationType, durationMessage = reflect.TypeFor[time.Duration](), reflect.TypeFor[*durationpb.Duration]()
	timeType, timeMessage         = reflect.TypeFor[time.Time](), reflect.TypeFor[*timestamppb.Timestamp]()
)

func newCopier(dst, src reflect.Type) copier {
	switch {
	// Zero durations and times are left out, so that a message of zeros is an empty message. Times cross in UTC, with nanoseconds.
	case src == durationType && dst == durationMessage:
		return func(dst, src reflect.Value) {
			if d := src.Int(); d != 0 {
				dst.Set(reflect.ValueOf(durationpb.New(time.Duration(d))))
			}
		}
	case dst == durationType && src == durationMessage:
		return func(dst, src reflect.Value) {
			dst.SetInt(int64(src.Interface().(*durationpb.Duration).AsDuration())) //nolint:forcetypeassert // checked
		}
	case src == timeType && dst == timeMessage:
		return func(dst, src reflect.Value) {
			if t := src.Addr().Interface().(*time.Time); !t.IsZero() { //nolint:forcetypeassert // checked
				dst.Set(reflect.ValueOf(timestamppb.New(*t)))
			}
		}
	case dst == timeType && src == timeMessage:
		return func(dst, src reflect.Value) {
			*dst.Addr().Interface().(*time.Time) = fromTime(src.Interface().(*timestamppb.Timestamp)) //nolint:forcetypeassert // checked
		}
	case dst.Kind() == reflect.String && src.Kind() == reflect.String:
		return func(dst, src reflect.Value) { dst.SetString(src.String()) }
	case dst.Kind() == reflect.Bool && src.Kind() == reflect.Bool:
		return func(dst, src reflect.Value) { dst.SetBool(src.Bool()) }
	case isInt(dst) && isInt(src):
		return func(dst, src reflect.Value) { dst.SetInt(src.Int()) }
	case isInt(dst) && src.Kind() == reflect.Uint8:
		return func(dst, src reflect.Value) { dst.SetInt(int64(src.Uint())) }
	case dst.Kind() == reflect.Uint8 && isInt(src):
		return func(dst, src reflect.Value) { dst.SetUint(uint64(src.Int()) & 0xff) }
	case dst == src: // a map, for example
		return func(dst, src reflect.Value) {
			if !src.IsZero() {
				dst.Set(src)
			}
		}
	case dst.Kind() == reflect.Struct && src.Kind() == reflect.Struct:
		return fieldsCopier(dst, src)
	case dst.Kind() == reflect.Slice && src.Kind() == reflect.Slice:
		return sliceCopier(dst, src)
	case dst.Kind() == reflect.Pointer && src.Kind() == reflect.Pointer:
		target := copierOf(dst.Elem(), src.Elem())
		return func(dst, src reflect.Value) {
			if !src.IsNil() {
				dst.Set(reflect.New(dst.Type().Elem()))
				target(dst.Elem(), src.Elem())
			}
		}
	case dst.Kind() == reflect.Pointer: // the message of a struct in a struct
		target := copierOf(dst.Elem(), src)
		return func(dst, src reflect.Value) {
			dst.Set(reflect.New(dst.Type().Elem()))
			target(dst.Elem(), src)
		}
	case src.Kind() == reflect.Pointer:
		target := copierOf(dst, src.Elem())
		return func(dst, src reflect.Value) {
			if !src.IsNil() {
				target(dst, src.Elem())
			}
		}
	default:
		panic(fmt.Sprintf("wire: %s cannot cross as %s", src, dst))
	}
}

func isInt(t reflect.Type) bool { return t.Kind() == reflect.Int || t.Kind() == reflect.Int64 }

// fieldsCopier copies the fields that both structs have.
func fieldsCopier(dst, src reflect.Type) copier {
	type field struct {
		dst, src int
		copy     copier
	}
	byName := map[string]int{}
	for i := range src.NumField() {
		if src.Field(i).IsExported() {
			byName[strings.ToLower(src.Field(i).Name)] = i
		}
	}
	var fields []field
	for i := range dst.NumField() {
		if from, ok := byName[strings.ToLower(dst.Field(i).Name)]; ok && dst.Field(i).IsExported() {
			fields = append(fields, field{i, from, copierOf(dst.Field(i).Type, src.Field(from).Type)})
		}
	}
	return func(dst, src reflect.Value) {
		for _, f := range fields {
			f.copy(dst.Field(f.dst), src.Field(f.src))
		}
	}
}

// sliceCopier copies element by element. An empty slice becomes nil.
func sliceCopier(dst, src reflect.Type) copier {
	element := copierOf(dst.Elem(), src.Elem())
	return func(dst, src reflect.Value) {
		if n := src.Len(); n > 0 {
			dst.Set(reflect.MakeSlice(dst.Type(), n, n))
			for i := range n {
				element(dst.Index(i), src.Index(i))
			}
		}
	}
}

// each converts a slice, element by element.
func each[T, S any](from []S, convert func(S) T) []T {
	if len(from) == 0 {
		return nil
	}
	all := make([]T, len(from))
	for i, s := range from {
		all[i] = convert(s)
	}
	return all
}

// toDuration leaves a zero out.
func toDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// toTime leaves the zero time out.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func fromTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
