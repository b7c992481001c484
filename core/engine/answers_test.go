package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// What a backend answers reaches the caller with its code and its fields: limits that hold no interpreter are invalid, and not
// something to try again.
func TestWhatABackendAnswersKeepsItsCodeAndItsField(t *testing.T) {
	t.Parallel()
	for _, code := range executor.Codes() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				answer := &executor.Error{
					Code: code, Message: "config.memory_mb: must be at least 8", Err: errors.New("secret"),
					Fields: []executor.FieldError{{Field: "config.memory_mb", Message: "must be at least 8"}},
				}
				s := withSessions(rules(func(c *config.Sessions) { c.Max = 1 }))
				s.fake.OpenHook = func(context.Context, executor.Session) error { return answer }
				s.fake.Hook = func(context.Context, executor.Job, executor.Sink, fake.RunFunc) (executor.Result, error) {
					return executor.Result{}, answer
				}
				r := newRig(t, s)
				for range 2 { // the place of the first is free for the second
					_, err := r.OpenSession(as("alice"), executor.Session{})
					if code == executor.Internal {
						wantCode(t, err, code)
						if err.Error() != "internal error" {
							t.Errorf("the inside shows: %v", err)
						}
						continue
					}
					wantCode(t, err, code, "config.memory_mb")
				}
				r.wantNoSessions()
				res := r.result(r.submit(as("alice"), "exit 0").ID)
				f := res.Failure
				if f == nil || f.Code != code || res.Status == executor.StatusSucceeded {
					t.Fatalf("the execution ended as %s, %+v", res.Status, f)
				}
				inside := f.Message == "internal error" && f.Field == ""
				if code == executor.Internal != inside || code != executor.Internal && (f.Field != "config.memory_mb" || !strings.Contains(f.Message, "at least 8")) {
					t.Errorf("the execution says %+v", f)
				}
			})
		})
	}
}
