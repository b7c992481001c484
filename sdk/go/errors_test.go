package pyexec_test

import (
	"errors"
	"net/http"
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
