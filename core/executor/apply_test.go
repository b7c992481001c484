package executor

import (
	"testing"
	"time"
)

func TestAProgramHasStartedBeforeWhatItHasRun(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for name, c := range map[string]struct{ started, finished, wall, collect, want int }{
		"a start that came late":            {20, 21, 18, 0, 3},
		"a start that came late, and files": {20, 61, 18, 40, 3},
		"an end that came late":             {3, 61, 18, 0, 3},
		"no start":                          {0, 61, 18, 0, 0},
	} {
		var r Record
		if c.started > 0 {
			r.Apply(Event{Seq: 1, Time: at(c.started), Body: Started{}})
		}
		result := Result{Wall: time.Duration(c.wall) * time.Millisecond, Phases: Phases{Collect: time.Duration(c.collect) * time.Millisecond}}
		r.Apply(Event{Seq: 2, Time: at(c.finished), Body: Finished{Result: result}})
		if want := at(c.want); c.want == 0 && !r.StartedAt.IsZero() || c.want > 0 && !r.StartedAt.Equal(want) {
			t.Errorf("%s: started at %s, want %s", name, r.StartedAt, want)
		}
	}
}
