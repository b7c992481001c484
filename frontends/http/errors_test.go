package httpfrontend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestEveryCodeHasItsStatus(t *testing.T) {
	t.Parallel()
	want := map[executor.Code]int{executor.Invalid: 422, executor.NotFound: 404, executor.Conflict: 409, executor.Exhausted: 429, executor.Unavailable: 503,
		executor.Unauthenticated: 401, executor.Denied: 403, executor.Unimplemented: 501, executor.Purged: 410, executor.Internal: 500}
	if len(want) != len(executor.Codes()) {
		t.Fatalf("%d codes in the table, %d exist", len(want), len(executor.Codes()))
	}
	for _, code := range executor.Codes() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			if got := httpStatus(code); got != want[code] {
				t.Fatalf("the code %s has the status %d, want %d", code, got, want[code])
			}
			svc := hello().service()
			svc.get = func(context.Context, string) (executor.Execution, error) {
				return executor.Execution{}, fmt.Errorf("wrapped: %w", &executor.Error{Code: code, Op: "get", Message: "reason", Fields: []executor.FieldError{{Field: "x", Message: "bad"}},
					ExecutionID: testID, RetryAfter: 1500 * time.Millisecond, Err: errors.New("secret")})
			}
			w := do(t, handlerOf(t, svc), http.MethodGet, "/api/v1/executions/"+testID, nil)
			if code == executor.Internal {
				p := wantProblem(t, w, 500, executor.Internal)
				if p["detail"] != "internal error" || p["errors"] != nil {
					t.Fatalf("the inside shows: %v", p)
				}
				return
			}
			p := wantProblem(t, w, want[code], code, "x")
			if p["detail"] != "reason" || p["execution_id"] != testID {
				t.Fatalf("the problem %v lacks the detail \"reason\" or the execution %s", p, testID)
			}
			if retry := w.Header().Get("Retry-After"); retry != "" && retry != "2" {
				t.Fatalf("Retry-After is %q, want none or 1.5 s rounded up", retry)
			}
			if code == executor.Unauthenticated && w.Header().Get("WWW-Authenticate") == "" {
				t.Fatal("401 has no WWW-Authenticate")
			}
		})
	}
	if httpStatus("new") != http.StatusInternalServerError {
		t.Fatal("an unknown code is not internal")
	}
}

func TestAnErrorOfAnotherTypeIsInternal(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.get = func(context.Context, string) (executor.Execution, error) {
		return executor.Execution{}, errors.New("password is hunter2")
	}
	p := wantProblem(t, do(t, handlerOf(t, svc), http.MethodGet, "/api/v1/executions/"+testID, nil), 500, executor.Internal)
	if p["detail"] != "internal error" {
		t.Fatalf("the problem %v shows what went wrong inside", p)
	}
}

func TestAPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.get = func(context.Context, string) (executor.Execution, error) { panic("oh") }
	wantProblem(t, do(t, handlerOf(t, svc), http.MethodGet, "/api/v1/executions/"+testID, nil), 500, executor.Internal)
}

func TestRetryAfterIsAtLeastASecond(t *testing.T) {
	t.Parallel()
	for retry, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60"} {
		_, header := problemOf(&executor.Error{Code: executor.Exhausted, RetryAfter: retry}, "")
		if got := header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After of %s is %q, want %q", retry, got, want)
		}
	}
}

func TestAnErrorWithoutAMessageSaysWhatItsCodeMeans(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		context.Canceled:                         "not available now, try again",
		&executor.Error{Code: executor.Conflict}: "Conflict",
	} {
		if p, _ := problemOf(err, ""); p.Detail != want {
			t.Errorf("%v has the detail %q, want %q", err, p.Detail, want)
		}
	}
}

func TestTheFirstPartOfARequestThatIsNamedIsKept(t *testing.T) {
	t.Parallel()
	p, _ := problemOf(in("body", in("query", executor.FieldErrorf(executor.Invalid, "limit", "bad"))), "")
	if len(p.Errors) != 1 || p.Errors[0].Location != "query.limit" {
		t.Errorf("%+v", p.Errors)
	}
}
