package mcpfrontend

import (
	"fmt"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAJobMakesRoomAmongItsOwnersJobsOnly(t *testing.T) {
	t.Parallel()
	js := &jobs{}
	add := func(owner, id string, finished bool) {
		j := &job{id: id, owner: owner}
		if finished {
			j.state.result = &executor.Result{}
		}
		js.add(j)
	}
	ids := func(owner string) []string {
		var list []string
		for _, j := range js.of(owner) {
			list = append(list, j.id)
		}
		return list
	}
	add("ann", "a", true)
	want := make([]string, maxJobs)
	for i := range want {
		want[i] = fmt.Sprintf("b%d", i)
		add("bob", want[i], i == 2 || i == 3)
	}
	if got := ids("bob"); !slices.Equal(got, want) {
		t.Fatalf("%d jobs of bob, want all %d", len(got), maxJobs)
	}
	for i := range 3 { // two have finished; then the oldest one goes
		id := fmt.Sprintf("more%d", i)
		add("bob", id, false)
		gone := []string{"b2", "b3", "b0"}[i]
		want = append(slices.DeleteFunc(want, func(id string) bool { return id == gone }), id)
		if got := ids("bob"); !slices.Equal(got, want) {
			t.Fatalf("after %s bob has %d jobs, of which %q to %q; %s was to go", id, len(got), got[0], got[len(got)-1], gone)
		}
	}
	if got := ids("ann"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("ann has the jobs %q", got)
	}
}
