package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/python-executor/python-executor/core/executor"
)

func TestEveryCodeCrossesAsItself(t *testing.T) {
	t.Parallel()
	seen := map[codes.Code]executor.Code{}
	for _, code := range executor.Codes() {
		t.Run(string(code), func(t *testing.T) {
			in := &executor.Error{
				Code: code, Op: "op", Message: "message \xff", ExecutionID: "exe_1", RetryAfter: 3 * time.Second,
				Fields: []executor.FieldError{{Field: "a.b", Message: "no"}, {Field: "c", Message: "nor this"}},
			}
			if out := fromStatus(t.Context(), toStatus(in)); !reflect.DeepEqual(out, in) {
				t.Errorf("with details: got %#v, want %#v", out, in)
			}
			// A peer that knows gRPC and not our details.
			bare := status.Error(grpcCode(code), "text")
			if got := executor.CodeOf(fromStatus(t.Context(), bare)); got != code {
				t.Errorf("without details: got %s, want %s", got, code)
			}
		})
		if other, ok := seen[grpcCode(code)]; ok {
			t.Errorf("%s and %s share %s", code, other, grpcCode(code))
		}
		seen[grpcCode(code)] = code
	}
}

func TestEveryGRPCCodeIsOneOfOurs(t *testing.T) {
	t.Parallel()
	known := map[executor.Code]bool{}
	for _, c := range executor.Codes() {
		known[c] = true
	}
	for c := codes.Code(1); c <= codes.Unauthenticated; c++ {
		if !known[executorCode(c)] {
			t.Errorf("%s maps to %q", c, executorCode(c))
		}
	}
	if executorCode(codes.OK) != "" || executorCode(99) != executor.Internal {
		t.Error("OK is no error, and a number that nobody knows is internal")
	}
}

func TestWhatAnErrorBecomes(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(context.Background())
	end(nil)
	given, why := context.WithCancelCause(context.Background())
	full, because := context.WithCancelCause(context.Background())
	why(errors.New("it took too long"))
	because(executor.Errorf(executor.Exhausted, "no room"))
	cases := map[string]struct {
		ctx  context.Context
		in   error
		code executor.Code
		text string
		is   error
	}{
		"an error of another type is internal": {in: errors.New("boom"), code: executor.Internal, text: "boom"},
		"a wrapped Error keeps the words around it": {
			in:   fmt.Errorf("start container: %w", executor.Errorf(executor.Exhausted, "no room")),
			code: executor.Exhausted, text: "start container: no room",
		},
		"a cause without a message gives its text": {
			in:   &executor.Error{Code: executor.Unavailable, Err: errors.New("dial")},
			code: executor.Unavailable, text: "dial",
		},
		"a code outside the list is internal":            {in: &executor.Error{Code: "odd", Message: "x"}, code: executor.Internal, text: "x"},
		"the end of a context is unavailable":            {in: context.DeadlineExceeded, code: executor.Unavailable, text: "context deadline exceeded"},
		"a lost connection is unavailable":               {in: status.Error(codes.Unavailable, "EOF"), code: executor.Unavailable, text: "EOF"},
		"what no status says is unavailable":             {in: nil, code: ""},
		"the cause of one's context's end comes with it": {ctx: given, in: status.Error(codes.DeadlineExceeded, "x"), code: executor.Unavailable, text: "it took too long"},
		"a cause keeps its code":                         {ctx: full, in: status.Error(codes.Canceled, "x"), code: executor.Exhausted, text: "no room"},
		"the end of one's own context is itself":         {ctx: ended, in: status.Error(codes.Canceled, "x"), code: executor.Unavailable, text: "context canceled", is: context.Canceled},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			in := c.in
			if _, isStatus := status.FromError(in); !isStatus {
				in = toStatus(in)
			}
			err := fromStatus(ctx, in)
			if c.in == nil {
				if err != nil {
					t.Fatalf("nil became %v", err)
				}
				return
			}
			if executor.CodeOf(err) != c.code || err.Error() != c.text {
				t.Errorf("got %s %q, want %s %q", executor.CodeOf(err), err, c.code, c.text)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
}

func TestALongMessageDoesNotBreakTheStatus(t *testing.T) {
	t.Parallel()
	in := executor.Errorf(executor.Invalid, "%s", strings.Repeat("é", 100_000))
	st := status.Convert(toStatus(in))
	if len(st.Message()) > maxStatusMessage+len("…") {
		t.Errorf("the status's own text has %d bytes", len(st.Message()))
	}
	if out := fromStatus(t.Context(), st.Err()); out.Error() != in.Error() {
		t.Error("the detail lost the message")
	}
}
