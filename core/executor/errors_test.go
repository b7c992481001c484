package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestAnErrorSaysWhatWasDoneAndWhy(t *testing.T) {
	tests := map[string]struct {
		err  *Error
		want string
	}{
		"the message":           {&Error{Code: Invalid, Message: "bad"}, "bad"},
		"the message, once":     {Errorf(Internal, "read: %w", io.EOF), "read: EOF"},
		"else the cause":        {&Error{Code: Internal, Err: io.EOF}, "EOF"},
		"else the code":         {&Error{Code: Exhausted}, "exhausted"},
		"with the operation":    {&Error{Code: NotFound, Op: "get", Message: "execution x"}, "get: execution x"},
		"the field and its why": {FieldErrorf(Invalid, "config.memory_mb", "must be > %d", 0), "config.memory_mb: must be > 0"},
	}
	for name, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	tests := map[string]struct {
		err  error
		want Code
	}{
		"no error":                 {nil, ""},
		"an Error":                 {Errorf(Conflict, "x"), Conflict},
		"an Error wrapped":         {fmt.Errorf("submit: %w", Errorf(Purged, "x")), Purged},
		"the outer of two":         {Errorf(Unavailable, "x: %w", Errorf(Invalid, "y")), Unavailable},
		"a context that ended":     {context.Canceled, Unavailable},
		"a deadline":               {fmt.Errorf("x: %w", context.DeadlineExceeded), Unavailable},
		"anything else is our bug": {io.ErrUnexpectedEOF, Internal},
	}
	for name, tt := range tests {
		if got := CodeOf(tt.err); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestErrorsAreFoundByCodeAndByCause(t *testing.T) {
	err := fmt.Errorf("outer: %w", Errorf(NotFound, "open: %w", io.EOF))
	if !errors.Is(err, &Error{Code: NotFound}) || errors.Is(err, &Error{Code: Invalid}) {
		t.Error("errors.Is does not compare codes")
	}
	if errors.Is(err, &Error{Code: NotFound, Message: "another"}) {
		t.Error("an Error with a message is not a code to compare with")
	}
	if !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
	if f := FieldErrorf(Denied, "script", "needs a scope").Fields; len(f) != 1 || f[0] != (FieldError{"script", "needs a scope"}) {
		t.Errorf("FieldErrorf made the fields %+v, want script with its message", f)
	}
}

func TestCodesAreTen(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range Codes() {
		seen[c] = true
	}
	if len(Codes()) != 10 || len(seen) != 10 {
		t.Errorf("%d codes, %d of them different, want 10: %v", len(Codes()), len(seen), Codes())
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"memory", "memory", 0}, {"memroy", "memory", 2}, {"kitten", "sitting", 3}} {
		if got := EditDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
