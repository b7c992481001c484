package storetest

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func specCases() []storeCase {
	return []storeCase{
		{"ST-40", "a large spec is brief everywhere but in Spec", largeSpecBrief},
		{"ST-40", "a small spec is whole everywhere", smallSpecWhole},
		{"ST-41", "a page is bounded in bytes", pageBytes},
	}
}

// largeRecord returns a Record whose Spec is large only if all its texts are counted.
func largeRecord(n int) executor.Record {
	r := newRecord(n)
	text := strings.Repeat("x", executor.BriefBytes/8)
	r.Spec = executor.Spec{
		Code: text, Requirements: text, Command: []string{text}, Args: []string{text}, PreCommands: []string{text, ""},
		Outputs: []string{text}, Env: map[string]string{"K": text + text}, PythonVersion: "3.12", Durable: n%2 == 0,
		IdempotencyKey: fmt.Sprint("key ", n), Limits: executor.Limits{PIDs: 7},
	}
	r.SpecBytes = r.Spec.Size()
	return r
}

func brief(r executor.Record) executor.Record {
	s := r.Spec
	r.Spec = executor.Spec{PythonVersion: s.PythonVersion, Durable: s.Durable, IdempotencyKey: s.IdempotencyKey, Limits: s.Limits}
	return r
}

// wantRecord fails the test unless every method that returns the Record of want's id returns want.
func wantRecord(t *testing.T, s executor.Store, want executor.Record) {
	t.Helper()
	same := func(how string, got executor.Record, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s of %s returned %.500s\nwant %.500s, error %v", how, want.ID, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want), err)
		}
	}
	got, err := s.Get(awaittest.Context(t), want.ID)
	same("Get", got, err)
	got, err = s.ByKey(awaittest.Context(t), want.Owner, want.Spec.IdempotencyKey)
	same("ByKey", got, err)
	page, err := s.List(awaittest.Context(t), executor.Filter{Limit: 1})
	if len(page) != 1 {
		t.Fatalf("List returned %d records, error %v", len(page), err)
	}
	same("List", page[0], err)
	got, err = s.Update(awaittest.Context(t), want.ID, func(r *executor.Record) { same("the record in Update", *r, nil) })
	same("Update", got, err)
	again := want.Clone()
	again.ID = newID(99)
	got, created, err := s.Create(awaittest.Context(t), again)
	if created {
		t.Errorf("Create with the key of %s made another", want.ID)
	}
	same("the second Create", got, err)
}

func wantSpec(t *testing.T, s executor.Store, id string, want executor.Spec) {
	t.Helper()
	got, err := s.Spec(awaittest.Context(t), id)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Spec of %s has %d bytes, want %d, error %v", id, got.Size(), want.Size(), err)
	}
}

func largeSpecBrief(t *testing.T, s executor.Store) {
	r := largeRecord(1)
	if got := create(t, s, r); !reflect.DeepEqual(got, brief(r)) {
		t.Errorf("Create returned a spec of %d bytes", got.Spec.Size())
	}
	wantRecord(t, s, brief(r))
	wantSpec(t, s, r.ID, r.Spec)
	if _, err := s.Update(awaittest.Context(t), r.ID, func(u *executor.Record) { u.Attempts, u.Spec.Code = 2, "changed" }); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, r.ID, executor.Started{PID: 1}, finished(executor.StatusSucceeded))
	wantRecord(t, s, get(t, s, r.ID))
	wantSpec(t, s, r.ID, r.Spec)
}

func smallSpecWhole(t *testing.T, s executor.Store) {
	r := largeRecord(1)
	r.Spec.Code = r.Spec.Code[:int64(len(r.Spec.Code))-(r.Spec.Size()-executor.BriefBytes)]
	r.SpecBytes = executor.BriefBytes
	create(t, s, r)
	wantRecord(t, s, r)
	wantSpec(t, s, r.ID, r.Spec)
}

func pageBytes(t *testing.T, s executor.Store) {
	const n = 6
	files := make([]executor.Artifact, 1000)
	for i := range files {
		files[i].Path = strings.Repeat("f", executor.MaxPageBytes/2500)
	}
	whole := make([]executor.Artifact, 4000)
	for i := range whole {
		whole[i].Path = files[0].Path
	}
	for i := range n {
		r := newRecord(i)
		create(t, s, r)
		end := finished(executor.StatusSucceeded)
		if end.Result.Artifacts = files; i == 2 {
			end.Result.Artifacts = whole // more than a page
		}
		appendAll(t, s, r.ID, end)
	}
	var sizes []int
	var ids []string
	for after := ""; ; after = ids[len(ids)-1] {
		page, err := s.List(awaittest.Context(t), executor.Filter{After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		sizes = append(sizes, len(page))
		weight := int64(0)
		for _, r := range page {
			ids = append(ids, r.ID)
			weight += r.Weight()
		}
		if len(page) > 1 && weight > executor.MaxPageBytes {
			t.Errorf("a page of %d records weighs %d bytes", len(page), weight)
		}
	}
	if want := []int{2, 1, 1, 2}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("the pages have %v records, want %v", sizes, want)
	}
	for i, id := range ids {
		if id != newID(n-1-i) {
			t.Errorf("the pages show %v", ids)
			break
		}
	}
}

func reopenLargeSpec(t *testing.T, open func() (executor.Store, error)) {
	const n = 4
	session(t, open, func(s executor.Store) {
		for i := range n {
			create(t, s, largeRecord(i))
		}
	})
	session(t, open, func(s executor.Store) {
		for i := range n {
			wantSpec(t, s, newID(i), largeRecord(i).Spec)
		}
		wantRecord(t, s, brief(largeRecord(n-1)))
		if _, err := s.Update(awaittest.Context(t), newID(1), func(u *executor.Record) { u.Attempts = 5 }); err != nil {
			t.Fatal(err)
		}
		appendAll(t, s, newID(2), executor.Queued{})
		if err := s.Delete(awaittest.Context(t), newID(3)); err != nil {
			t.Fatal(err)
		}
	})
	session(t, open, func(s executor.Store) {
		for i := range n - 1 {
			wantSpec(t, s, newID(i), largeRecord(i).Spec)
		}
		_, err := s.Spec(awaittest.Context(t), newID(3))
		wantCode(t, "Spec of a deleted one", err, executor.Purged)
		again := newRecord(3)
		create(t, s, again)
		wantSpec(t, s, again.ID, again.Spec)
	})
	session(t, open, func(s executor.Store) {
		wantSpec(t, s, newID(3), newRecord(3).Spec)
	})
}

func largeSpecsUnread(t *testing.T, open func() (executor.Store, error)) {
	const n, each = 30, 2 << 20
	session(t, open, func(s executor.Store) {
		for i := range n {
			r := newRecord(i)
			r.Spec.Code = strings.Repeat("x", each)
			create(t, s, r)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	session(t, open, func(s executor.Store) {
		page, err := s.List(awaittest.Context(t), executor.Filter{Limit: 2 * n})
		if err != nil || len(page) != n {
			t.Fatalf("List returned %d records, want %d, error %v", len(page), n, err)
		}
		for _, r := range page {
			if get(t, s, r.ID).SpecBytes < each {
				t.Fatalf("%s has lost its spec", r.ID)
			}
			if _, err := s.Update(awaittest.Context(t), r.ID, func(u *executor.Record) { u.Attempts++ }); err != nil {
				t.Fatal(err)
			}
			appendAll(t, s, r.ID, executor.Queued{})
		}
	})
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > n*each/4 {
		t.Errorf("%d bytes were allocated beside specs of %d bytes", got, n*each)
	}
}
