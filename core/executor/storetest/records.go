package storetest

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func recordCases() []storeCase {
	return []storeCase{
		{"ST-01", "create then get", createThenGet},
		{"ST-02", "an id is created once", createTwice},
		{"ST-03", "one of many creates with a key wins", idempotentCreate},
		{"ST-04", "a key is per owner and dies with its record", keyLifetime},
		{"ST-05", "unknown and deleted ids", unknownAndPurged},
		{"ST-06", "copies in and out", copies},
		{"ST-07", "list pages newest first", listPages},
		{"ST-08", "list filters", listFilters},
		{"ST-09", "update leaves the fold alone", updateKeepsFold},
		{"ST-09", "update is atomic", updateAtomic},
		{"ST-17", "delete is idempotent", deleteIdempotent},
	}
}

func createThenGet(t *testing.T, s executor.Store) {
	r := newRecord(1)
	r.LastSeq, r.LogBytes, r.SpecBytes = 9, 9, 9
	want := newRecord(1)
	r.CreatedAt = want.CreatedAt.In(time.FixedZone("", 3600)) // every Store returns UTC
	if got := create(t, s, r); !reflect.DeepEqual(got, want) {
		t.Errorf("Create returned %+v\nwant %+v", got, want)
	}
	if got := get(t, s, want.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("Get returned %+v\nwant %+v", got, want)
	}
}

func createTwice(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	second := newRecord(1)
	second.Owner = "bob"
	_, created, err := s.Create(awaittest.Context(t), second)
	wantCode(t, "second Create", err, executor.Conflict)
	if created {
		t.Error("the second Create reports created")
	}
	if got := get(t, s, newID(1)); got.Owner != "ann" {
		t.Errorf("the record now belongs to %s", got.Owner)
	}
	_, _, err = s.Create(awaittest.Context(t), executor.Record{})
	wantCode(t, "Create without an id", err, executor.Invalid)
}

func idempotentCreate(t *testing.T, s executor.Store) {
	const n = 16
	var wg sync.WaitGroup
	var wins atomic.Int64
	ids := make([]string, n)
	for i := range n {
		wg.Go(func() {
			r := newRecord(i)
			r.Spec.IdempotencyKey = "k"
			got, created, err := s.Create(awaittest.Context(t), r)
			if err != nil {
				t.Errorf("Create: %v", err)
			}
			if created {
				wins.Add(1)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d creates say that they created", wins.Load())
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("got records %s and %s for one key", ids[0], id)
		}
	}
	page, err := s.List(awaittest.Context(t), executor.Filter{})
	if err != nil || len(page) != 1 {
		t.Errorf("List has %d records, error %v", len(page), err)
	}
	if got, err := s.ByKey(awaittest.Context(t), newRecord(0).Owner, "k"); err != nil || got.ID != ids[0] {
		t.Errorf("ByKey found %q, error %v, want %s", got.ID, err, ids[0])
	}
}

func keyLifetime(t *testing.T, s executor.Store) {
	first := newRecord(1)
	first.Spec.IdempotencyKey = "k"
	create(t, s, first)
	other := newRecord(2)
	other.Owner, other.Spec.IdempotencyKey = "bob", "k"
	create(t, s, other)
	if err := s.Delete(awaittest.Context(t), first.ID); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{first.Owner, "nobody"} {
		_, err := s.ByKey(awaittest.Context(t), owner, "k")
		wantCode(t, "ByKey of "+owner, err, executor.NotFound)
	}
	_, err := s.ByKey(awaittest.Context(t), first.Owner, "")
	wantCode(t, "ByKey of no key", err, executor.NotFound)
	again := newRecord(3)
	again.Spec.IdempotencyKey = "k"
	create(t, s, again)
}

func unknownAndPurged(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	if err := s.Delete(awaittest.Context(t), newID(1)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]executor.Code{newID(1): executor.Purged, newID(2): executor.NotFound, "": executor.NotFound} {
		_, err := s.Get(awaittest.Context(t), id)
		wantCode(t, "Get", err, want)
		_, err = s.Spec(awaittest.Context(t), id)
		wantCode(t, "Spec", err, want)
		_, err = s.Update(awaittest.Context(t), id, func(*executor.Record) { t.Error("change was called") })
		wantCode(t, "Update", err, want)
		err = s.Append(awaittest.Context(t), id, executor.Event{Body: executor.Queued{}})
		wantCode(t, "Append", err, want)
		rounds := 0
		for _, err := range s.Events(awaittest.Context(t), id, 0) {
			rounds++
			wantCode(t, "Events", err, want)
		}
		if rounds != 1 {
			t.Errorf("Events yielded %d times, want the error once", rounds)
		}
	}
}

func copies(t *testing.T, s executor.Store) {
	r := newRecord(1)
	create(t, s, r)
	r.Spec.Args[0], r.Spec.Env["K"] = "changed", "changed"
	out := []byte("abc")
	reqs := []string{"x==1"}
	appendAll(t, s, r.ID, executor.Started{Requirements: reqs}, executor.Output{Stream: executor.Stdout, Data: out})
	out[0], reqs[0] = 'X', "changed"

	got := get(t, s, r.ID)
	got.Spec.Args[1], got.Spec.Env["K"], got.Started.Requirements[0] = "changed", "changed", "changed"
	events := head(t, s, r.ID, 2)
	events[1].Body.(executor.Output).Data[1] = 'X' //nolint:forcetypeassert // appended above
	page, err := s.List(awaittest.Context(t), executor.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	page[0].Spec.Args[0] = "changed"
	updated, err := s.Update(awaittest.Context(t), r.ID, func(u *executor.Record) { u.Spec.Env["K"] = "changed" })
	if err != nil {
		t.Fatal(err)
	}
	updated.Spec.Env["K"] = "changed"
	spec, err := s.Spec(awaittest.Context(t), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	spec.Args[0], spec.Env["K"] = "changed", "changed"

	got = get(t, s, r.ID)
	if !reflect.DeepEqual(got.Spec.Args, []string{"a", "b"}) || got.Spec.Env["K"] != "v" || got.Started.Requirements[0] != "x==1" {
		t.Errorf("the record was changed from outside: %+v", got)
	}
	if data := head(t, s, r.ID, 2)[1].Body.(executor.Output).Data; string(data) != "abc" { //nolint:forcetypeassert // appended above
		t.Errorf("the log was changed from outside: %q", data)
	}
}

func listPages(t *testing.T, s executor.Store) {
	const n = 123
	for i := range n {
		create(t, s, newRecord((i*50)%n)) // 50 and 123 share no factor: every number once, in no order
	}
	for limit, pages := range map[int]int{7: 18, 0: 3, 100: 2, 501: 1} {
		want := n - 1
		after := ""
		count := 0
		for {
			page, err := s.List(awaittest.Context(t), executor.Filter{Limit: limit, After: after})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			count++
			for _, r := range page {
				if r.ID != newID(want) {
					t.Fatalf("limit %d: got %s, want %s", limit, r.ID, newID(want))
				}
				want--
			}
			after = page[len(page)-1].ID
		}
		if want != -1 || count != pages {
			t.Errorf("limit %d: %d pages down to %d, want %d pages down to 0", limit, count, want+1, pages)
		}
	}
	page, err := s.List(awaittest.Context(t), executor.Filter{After: newID(5) + "x", Limit: 1})
	if err != nil || len(page) != 1 || page[0].ID != newID(5) {
		t.Errorf("After an id that does not exist: %d records, error %v", len(page), err)
	}
}

func listFilters(t *testing.T, s executor.Store) {
	for i := range 9 {
		r := newRecord(i)
		if i%3 == 0 {
			r.Owner = "bob"
		}
		create(t, s, r)
		if i%2 == 0 {
			appendAll(t, s, r.ID, executor.Started{PID: 1})
		}
		if i == 4 || i == 6 {
			appendAll(t, s, r.ID, finished(executor.StatusSucceeded))
		}
	}
	for _, c := range []struct {
		name   string
		filter executor.Filter
		want   []int
	}{
		{"all", executor.Filter{}, []int{8, 7, 6, 5, 4, 3, 2, 1, 0}},
		{"one owner", executor.Filter{Owner: "bob"}, []int{6, 3, 0}},
		{"one status", executor.Filter{Statuses: []executor.Status{executor.StatusRunning}}, []int{8, 2, 0}},
		{"two statuses", executor.Filter{Statuses: []executor.Status{executor.StatusSucceeded, executor.StatusQueued}}, []int{7, 6, 5, 4, 3, 1}},
		{"owner and status, paged", executor.Filter{Owner: "ann", Statuses: []executor.Status{executor.StatusQueued}, After: newID(7), Limit: 1}, []int{5}},
		{"one status, paged, behind another status", executor.Filter{Statuses: []executor.Status{executor.StatusRunning}, After: newID(8), Limit: 1}, []int{2}},
		{"nobody", executor.Filter{Owner: "eve"}, nil},
	} {
		page, err := s.List(awaittest.Context(t), c.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, r := range page {
			got = append(got, r.ID)
		}
		for _, n := range c.want {
			want = append(want, newID(n))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
	}
}

func updateKeepsFold(t *testing.T, s executor.Store) {
	r := newRecord(1)
	r.Spec.IdempotencyKey = "k"
	create(t, s, r)
	appendAll(t, s, r.ID, executor.Started{PID: 5}, output(0, "abc"), finished(executor.StatusFailed))
	before := get(t, s, r.ID)
	got, err := s.Update(awaittest.Context(t), r.ID, func(u *executor.Record) {
		*u = executor.Record{Execution: executor.Execution{ID: "other", Owner: "eve", Backend: "b2", Attempts: 2, LastSeq: 99,
			Status: executor.StatusQueued, CreatedAt: time.Unix(0, 0)}, LogBytes: 1, WorkspaceBlob: "w", StdinBlob: "s",
			ArtifactsBlob: "a", Cancelled: true, SpecBytes: 1}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := before.Clone()
	want.Backend, want.Attempts, want.SpecDigest = "b2", 2, ""
	want.WorkspaceBlob, want.StdinBlob, want.ArtifactsBlob, want.Cancelled = "w", "s", "a", true
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(get(t, s, r.ID), want) {
		t.Errorf("Update made %+v\nwant %+v", got, want)
	}
}

func updateAtomic(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	var wg sync.WaitGroup
	const workers, rounds = 8, 25
	for range workers {
		wg.Go(func() {
			for range rounds {
				if _, err := s.Update(awaittest.Context(t), newID(1), func(u *executor.Record) { u.Attempts++ }); err != nil {
					t.Errorf("Update: %v", err)
				}
				if err := s.Append(awaittest.Context(t), newID(1), executor.Event{Body: executor.Progress{}}); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if r := get(t, s, newID(1)); r.Attempts != 1+workers*rounds || r.LastSeq != workers*rounds {
		t.Errorf("Attempts %d and LastSeq %d, want %d and %d", r.Attempts, r.LastSeq, 1+workers*rounds, workers*rounds)
	}
}

func deleteIdempotent(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	create(t, s, newRecord(2))
	for range 2 {
		if err := s.Delete(awaittest.Context(t), newID(1)); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if err := s.Delete(awaittest.Context(t), newID(7)); err != nil {
		t.Errorf("Delete of an unknown id: %v", err)
	}
	_, err := s.Get(awaittest.Context(t), newID(7))
	wantCode(t, "Get of an id that was deleted but never was", err, executor.NotFound)
	page, err := s.List(awaittest.Context(t), executor.Filter{})
	if err != nil || len(page) != 1 || page[0].ID != newID(2) {
		t.Errorf("List after Delete: %d records, error %v", len(page), err)
	}
	create(t, s, newRecord(1))
	if r := get(t, s, newID(1)); r.LastSeq != 0 {
		t.Errorf("a new record under a deleted id starts at Seq %d", r.LastSeq)
	}
}
