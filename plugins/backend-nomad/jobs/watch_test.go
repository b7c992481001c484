package jobs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// aTracked returns a job that was made at index 10.
func aTracked(t *testing.T) *tracked {
	t.Helper()
	tracked, release := newWatcher(nil, slog.New(slog.DiscardHandler)).track(jobID("exe_1"))
	t.Cleanup(release)
	tracked.begin(10)
	return tracked
}

func TestAnAllocationIsOverWhenNothingOfItRuns(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]error{
		api.AllocClientStatusPending: nil, api.AllocClientStatusRunning: nil, api.AllocClientStatusUnknown: nil,
		api.AllocClientStatusComplete: errOver, api.AllocClientStatusFailed: errOver, api.AllocClientStatusLost: errLost,
	} {
		a := allocation{ID: "a", Client: status, CreateIndex: 11, Index: 11}
		x := aTracked(t)
		x.take(a)
		if got := context.Cause(x.life); a.over() != (want != nil) || !errors.Is(got, want) {
			t.Errorf("%s: over %v, the life ended with %v", status, a.over(), got)
		}
	}
}

// TestOnlyLaterStatesOfTheJobsAllocationAreTaken: a job of the same name may have been there before.
func TestOnlyLaterStatesOfTheJobsAllocationAreTaken(t *testing.T) {
	t.Parallel()
	x := aTracked(t)
	for _, step := range []struct {
		what string
		a    allocation
		want uint64 // the index of the state that counts
	}{
		{"one of a former job", allocation{ID: "former", CreateIndex: 9, Index: 50}, 0},
		{"the first", allocation{ID: "a", CreateIndex: 10, Index: 20}, 20},
		{"an earlier state", allocation{ID: "a", CreateIndex: 10, Index: 19}, 20},
		{"another allocation", allocation{ID: "b", CreateIndex: 21, Index: 30}, 20},
		{"a later state", allocation{ID: "a", CreateIndex: 10, Index: 25}, 25},
	} {
		x.take(step.a)
		var got uint64
		if a, _, _ := x.now(); a != nil {
			got = a.Index
		}
		if got != step.want {
			t.Errorf("%s: the index is %d, want %d", step.what, got, step.want)
		}
	}
	early, _ := newWatcher(nil, nil).track("x")
	early.take(allocation{ID: "a", CreateIndex: 10})
	early.takeEval(&api.Evaluation{CreateIndex: 10})
	if a, e, _ := early.now(); a != nil || e != nil {
		t.Errorf("taken before the job was made: %+v %+v", a, e)
	}
}

func TestTheReasonOfTheLastEvaluationThatFoundNoPlaceIsKept(t *testing.T) {
	t.Parallel()
	failed := map[string]*api.AllocationMetric{groupName: {NodesEvaluated: 1, NodesExhausted: 1, DimensionExhausted: map[string]int{"memory": 1}}}
	x := aTracked(t)
	x.takeEval(&api.Evaluation{ID: "former", CreateIndex: 9, ModifyIndex: 50, FailedTGAllocs: failed})
	if words := x.unplaced(); words != "" {
		t.Errorf("a former job had no place: %q", words)
	}
	x.takeEval(&api.Evaluation{ID: "first", CreateIndex: 10, ModifyIndex: 12, FailedTGAllocs: failed})
	reason := x.unplaced()
	x.takeEval(&api.Evaluation{ID: "second", CreateIndex: 11, ModifyIndex: 14})
	x.takeEval(&api.Evaluation{ID: "late", CreateIndex: 10, ModifyIndex: 13})
	if _, e, _ := x.now(); reason == "" || x.unplaced() != reason || e.ID != "second" {
		t.Errorf("the reason was %q and is %q; the evaluation is %s", reason, x.unplaced(), e.ID)
	}
}

func TestAJobIsStaleUntilItWasLookedAt(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, slog.New(slog.DiscardHandler))
	x, release := w.track("job")
	defer release()
	broken := errors.New("no server")
	for _, step := range []struct {
		what  string
		do    func()
		stale bool
		state error
	}{
		{"it is not made yet", func() {}, false, nil},
		{"it was made", func() { x.begin(1) }, true, nil},
		{"it was looked at", func() {}, false, nil},
		{"the events have ended", func() { w.connected(broken) }, false, broken},
		{"the events come again", func() { w.connected(nil) }, true, nil},
	} {
		step.do()
		if _, _, stale := x.now(); stale != step.stale || !errors.Is(w.state(), step.state) {
			t.Errorf("%s: stale %v, events %v", step.what, stale, w.state())
		}
	}
}

func TestAJobThatIsFollowedAnewIsNotReleasedByTheFormerCall(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, slog.New(slog.DiscardHandler))
	_, former := w.track("job")
	next, release := w.track("job")
	former()
	if w.find("job") != next || w.count() != 1 {
		t.Error("the job is not followed any more")
	}
	release()
	if w.find("job") != nil || w.count() != 0 {
		t.Error("the job is still followed")
	}
}

// TestAnEventIsFoundByTheJobThatItNames: an allocation's key is its own, and the job's is among the others.
func TestAnEventIsFoundByTheJobThatItNames(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, slog.New(slog.DiscardHandler))
	x, release := w.track(jobID("exe_1"))
	defer release()
	x.begin(1)
	payload := map[string]any{"Allocation": map[string]any{"ID": "a", "CreateIndex": 2, "ModifyIndex": 3, "ModifyTime": 5}}
	w.event(&api.Event{Topic: api.TopicAllocation, Key: "a", FilterKeys: []string{"node", jobID("exe_2")}, Payload: payload})
	if a, _, _ := x.now(); a != nil {
		t.Errorf("the event of another job was taken: %+v", a)
	}
	w.event(&api.Event{Topic: api.TopicAllocation, Key: "a", FilterKeys: []string{"node", jobID("exe_1")}, Payload: payload})
	w.event(&api.Event{Topic: api.TopicEvaluation, Key: "e", FilterKeys: []string{jobID("exe_1")}, Payload: map[string]any{"Evaluation": map[string]any{"ID": "e", "CreateIndex": 2}}})
	if a, e, _ := x.now(); a == nil || a.ID != "a" || !a.ModifyTime.Equal(time.Unix(0, 5)) || e == nil || e.ID != "e" {
		t.Errorf("%+v, %+v", a, e)
	}
}

func TestTheTimeBeforeTheProgramIsThatOnItsNode(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	event := func(kind string, s int64) *api.TaskEvent { return &api.TaskEvent{Type: kind, Time: at(s).UnixNano()} }
	tasks := map[string]*api.TaskState{
		taskPrepare: {StartedAt: at(105), Events: []*api.TaskEvent{event("Other", 90), event(api.TaskReceived, 100)}},
		taskProgram: {StartedAt: at(130), Events: []*api.TaskEvent{event(api.TaskReceived, 101)}},
		taskFeed:    {},
	}
	a := allocation{Tasks: tasks}
	if got := a.waited(); got != 30*time.Second {
		t.Errorf("%s, want 30s", got)
	}
	for task, want := range map[string]bool{taskPrepare: true, taskProgram: true, taskFeed: false, "unknown": false} {
		if a.began(task) != want {
			t.Errorf("%s began: %v", task, !want)
		}
	}
	tasks[taskProgram].StartedAt = time.Time{}
	if got := a.waited(); got != 0 {
		t.Errorf("the program has not started, and waited %s", got)
	}
}

func TestANomadThatDoesNotAnswerIsNamedWithTheKeyOfItsAddress(t *testing.T) {
	t.Parallel()
	client, err := api.NewClient(&api.Config{Address: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{name: "n", cluster: newCluster(client)}
	_, err = newWatcher(b.cluster, slog.New(slog.DiscardHandler)).stream(t.Context())
	said := b.unheard(err)
	for _, want := range []string{"no Nomad answers at http://127.0.0.1:1 ", "refused", "backends.n.address", "NOMAD_ADDR"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
	if said := b.unheard(errors.New("Permission denied")); said != "Nomad's events do not come: Permission denied" {
		t.Error(said)
	}
}
