package pyexec_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// failed returns the error that a Client makes of one answer.
func failed(t *testing.T, handler http.HandlerFunc) *pyexec.Error {
	t.Helper()
	c := serve(t, handler, pyexec.WithRetry(pyexec.RetryPolicy{Attempts: 1}))
	_, err := c.Get(t.Context(), "exe_1")
	e, ok := errors.AsType[*pyexec.Error](err)
	if !ok {
		t.Fatalf("the error is %v", err)
	}
	return e
}

func TestAStatusWithoutABodyHasACode(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		302: pyexec.CodeInternal, 400: pyexec.CodeInvalid, 401: pyexec.CodeUnauthenticated, 403: pyexec.CodeDenied, 404: pyexec.CodeNotFound,
		408: pyexec.CodeUnavailable, 409: pyexec.CodeConflict, 410: pyexec.CodePurged, 413: pyexec.CodeExhausted, 422: pyexec.CodeInvalid,
		429: pyexec.CodeExhausted, 500: pyexec.CodeInternal, 501: pyexec.CodeUnimplemented, 502: pyexec.CodeUnavailable,
		503: pyexec.CodeUnavailable, 504: pyexec.CodeUnavailable,
	} {
		e := failed(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		if e.Code != want || e.Status != status {
			t.Errorf("status %d gives code %q and status %d, want %q", status, e.Code, e.Status, want)
		}
	}
}

func TestAnErrorSaysWhatItsBodySays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, contentType, body, code, text string }{
		{"the body's code wins over the status", "application/problem+json", `{"code":"purged","detail":"gone"}`, pyexec.CodePurged, "gone"},
		{"plain JSON with a charset", "application/json; charset=utf-8", `{"code":"denied","detail":"no"}`, pyexec.CodeDenied, "no"},
		{"a title alone", "application/problem+json", `{"title":"Conflict"}`, pyexec.CodeConflict, "Conflict"},
		{"nothing", "application/problem+json", `{}`, pyexec.CodeConflict, "the server answered 409 Conflict"},
		{"another type", "text/plain", `{"code":"denied","detail":"no"}`, pyexec.CodeConflict, "the server answered 409 Conflict"},
		{"too long", "application/problem+json", `{"code":"denied","detail":"` + strings.Repeat("x", 2<<20) + `"}`, pyexec.CodeConflict, "the server answered 409 Conflict"},
		{"fields that the detail has", "application/problem+json", `{"detail":"code: is empty","errors":[{"field":"code","message":"is empty"}]}`, pyexec.CodeConflict, "code: is empty"},
		{"fields that it has not", "application/problem+json", `{"detail":"bad","errors":[{"field":"a","message":"is empty"},{"field":"b","message":"is long"}]}`,
			pyexec.CodeConflict, "bad; a: is empty; b: is long"},
	} {
		e := failed(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusConflict, c.contentType, c.body) })
		if e.Code != c.code || e.Error() != c.text {
			t.Errorf("%s: code %q and text %.100q, want %q and %q", c.name, e.Code, e.Error(), c.code, c.text)
		}
	}
	if code := pyexec.CodeOf(nil); code != "" {
		t.Errorf("the code of no error is %q", code)
	}
	if code := pyexec.CodeOf(errors.New("another")); code != pyexec.CodeInternal {
		t.Errorf("the code of another error is %q", code)
	}
	if text := (&pyexec.Error{Code: pyexec.CodeDenied}).Error(); text != "denied" {
		t.Errorf("an error without a message says %q", text)
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	t.Parallel()
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for header, within := range map[string][2]time.Duration{
		"":                     {0, 0},
		"5":                    {5 * time.Second, 5 * time.Second},
		"-5":                   {0, 0},
		"86401":                {24 * time.Hour, 24 * time.Hour},
		"9000000000000000000":  {24 * time.Hour, 24 * time.Hour},
		"soon":                 {0, 0},
		date(10 * time.Hour):   {time.Hour, 10 * time.Hour},
		date(-10 * time.Hour):  {0, 0},
		"99999999999999999999": {0, 0},
	} {
		e := failed(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if e.RetryAfter < within[0] || e.RetryAfter > within[1] {
			t.Errorf("Retry-After %q is read as %s, want between %s and %s", header, e.RetryAfter, within[0], within[1])
		}
	}
}

func TestAnAnswerThatIsCutKeepsItsStatus(t *testing.T) {
	t.Parallel()
	e := failed(t, func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, `{"execution_id":"e`) })
	if e.Status != http.StatusOK || e.Code != pyexec.CodeUnavailable {
		t.Errorf("the error is %+v", e)
	}
}
