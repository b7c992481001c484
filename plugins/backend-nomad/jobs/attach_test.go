package jobs

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func TestNothingIsPlacedAfterTheLastEvaluationOfAStoppedJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		by, status string
		want       bool
	}{
		{"job-deregister", api.EvalStatusComplete, true},
		{"job-deregister", api.EvalStatusPending, false},
		{"queued-allocs", api.EvalStatusCancelled, true},
		{"queued-allocs", api.EvalStatusBlocked, false},
		{"job-register", api.EvalStatusComplete, false},
	} {
		if got := unplaceable(&api.Evaluation{TriggeredBy: c.by, Status: c.status}); got != c.want {
			t.Errorf("%s %s: %v", c.by, c.status, got)
		}
	}
}
