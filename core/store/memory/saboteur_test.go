package memorystore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/storetest"
	memorystore "github.com/python-executor/python-executor/core/store/memory"
)

// sabotageEnv names a saboteur to a child of this test binary, which then holds the suite against it.
const sabotageEnv = "PYEXEC_TEST_SABOTEUR"

// saboteur is a Store that breaks the law in one way. The suite must find it out, by exactly these rules.
type saboteur struct {
	name  string
	rules []string
	build func(executor.Store) executor.Store
}

func saboteurs() []saboteur {
	return []saboteur{
		{"an honest one", nil, func(s executor.Store) executor.Store { return s }},
		{"one that forgets what was deleted", []string{"ST-05", "ST-17"}, func(s executor.Store) executor.Store { return forgetful{s} }},
		{"one without idempotency", []string{"ST-03", "ST-40"}, func(s executor.Store) executor.Store { return &keyless{Store: s} }},
		{"one that lists the oldest first", []string{"ST-07", "ST-08", "ST-41"}, func(s executor.Store) executor.Store { return upsideDown{s} }},
		{"one that ignores the owner in lists", []string{"ST-08"}, func(s executor.Store) executor.Store { return open{s} }},
		{"one that takes a batch in pieces", []string{"ST-10", "ST-12"}, func(s executor.Store) executor.Store { return piecemeal{s} }},
		{"one that replays from the start", []string{"ST-13"}, func(s executor.Store) executor.Store { return deaf{s} }},
		{"one that drops what it does not know", []string{"ST-18"}, func(s executor.Store) executor.Store { return narrow{s} }},
		{"one that counts no bytes", []string{"ST-09", "ST-19", "ST-40"}, func(s executor.Store) executor.Store { return blind{s} }},
		{"one that lets Update change everything", []string{"ST-09", "ST-19"}, func(s executor.Store) executor.Store { return lax{s} }},
		{"one that hands its sessions out", []string{"ST-28"}, func(s executor.Store) executor.Store { return &generous{Store: s} }},
		{"one that lists the oldest session first", []string{"ST-26"}, func(s executor.Store) executor.Store { return backwards{s} }},
		{"one that lists everybody's sessions", []string{"ST-26", "ST-27"}, func(s executor.Store) executor.Store { return nosy{s} }},
		{"one that replaces a session", []string{"ST-24"}, func(s executor.Store) executor.Store { return replacing{s} }},
		{"one that says purged of a session", []string{"ST-25"}, func(s executor.Store) executor.Store { return resentful{s} }},
		{"one that updates sessions in two steps", []string{"ST-27"}, func(s executor.Store) executor.Store { return torn{s} }},
		{"one that deletes the session with the execution", []string{"ST-29"}, func(s executor.Store) executor.Store { return mixing{s} }},
		{"one that lists whole specs", []string{"ST-40"}, func(s executor.Store) executor.Store { return lavish{s} }},
		{"one whose pages have no bound in bytes", []string{"ST-41"}, func(s executor.Store) executor.Store { return heavy{s} }},
		{"one that begins each log empty", []string{"ST-42"}, func(s executor.Store) executor.Store { return blank{s} }},
		{"one that has only the spec in brief", []string{"ST-40"}, func(s executor.Store) executor.Store { return curt{s} }},
	}
}

// lavish lists whole Specs.
type lavish struct{ executor.Store }

func (s lavish) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	page, err := s.Store.List(ctx, f)
	for i, r := range page {
		if page[i].Spec, err = s.Spec(ctx, r.ID); err != nil {
			return nil, err
		}
	}
	return page, err
}

// heavy fills its pages up to the limit.
type heavy struct{ executor.Store }

func (s heavy) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	var all []executor.Record
	for limit := f.PageSize(); ; {
		f.Limit = limit - len(all)
		page, err := s.Store.List(ctx, f)
		all = append(all, page...)
		if err != nil || len(page) == 0 || len(all) == limit {
			return all, err
		}
		f.After = page[len(page)-1].ID
	}
}

// blank creates Records without their first Events.
type blank struct{ executor.Store }

func (s blank) Create(ctx context.Context, r executor.Record, _ ...executor.Event) (executor.Record, bool, error) {
	return s.Store.Create(ctx, r)
}

// curt returns the Spec in brief where the whole one is asked for.
type curt struct{ executor.Store }

func (s curt) Spec(ctx context.Context, id string) (executor.Spec, error) {
	spec, err := s.Store.Spec(ctx, id)
	return spec.Brief(), err
}

type forgetful struct{ executor.Store }

func forget(err error) error {
	if executor.CodeOf(err) == executor.Purged {
		return executor.Errorf(executor.NotFound, "never heard of it")
	}
	return err
}

func (s forgetful) Get(ctx context.Context, id string) (executor.Record, error) {
	r, err := s.Store.Get(ctx, id)
	return r, forget(err)
}

func (s forgetful) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for e, err := range s.Store.Events(ctx, id, after) {
			if !yield(e, forget(err)) {
				return
			}
		}
	}
}

// keyless hides the key from the Store below, and shows it again.
type keyless struct {
	executor.Store
	mu   sync.Mutex
	keys map[string]string
}

func (s *keyless) Create(ctx context.Context, r executor.Record, events ...executor.Event) (executor.Record, bool, error) {
	key := r.Spec.IdempotencyKey
	r.Spec.IdempotencyKey = ""
	got, created, err := s.Store.Create(ctx, r, events...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]string{}
	}
	s.keys[r.ID] = key
	got.Spec.IdempotencyKey = key
	return got, created, err
}

func (s *keyless) show(r executor.Record) executor.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Spec.IdempotencyKey = s.keys[r.ID]
	return r
}

func (s *keyless) Get(ctx context.Context, id string) (executor.Record, error) {
	r, err := s.Store.Get(ctx, id)
	return s.show(r), err
}

func (s *keyless) Update(ctx context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	r, err := s.Store.Update(ctx, id, change)
	return s.show(r), err
}

type upsideDown struct{ executor.Store }

func (s upsideDown) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	page, err := s.Store.List(ctx, f)
	slices.Reverse(page)
	return page, err
}

type open struct{ executor.Store }

func (s open) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	f.Owner = ""
	return s.Store.List(ctx, f)
}

type piecemeal struct{ executor.Store }

func (s piecemeal) Append(ctx context.Context, id string, events ...executor.Event) error {
	if len(events) == 0 {
		return s.Store.Append(ctx, id)
	}
	for _, e := range events {
		if err := s.Store.Append(ctx, id, e); err != nil {
			return err
		}
		runtime.Gosched() // somebody comes between, on one core too
	}
	return nil
}

type deaf struct{ executor.Store }

func (s deaf) Events(ctx context.Context, id string, _ uint64) iter.Seq2[executor.Event, error] {
	return s.Store.Events(ctx, id, 0)
}

type narrow struct{ executor.Store }

func (s narrow) Append(ctx context.Context, id string, events ...executor.Event) error {
	known := slices.DeleteFunc(slices.Clone(events), func(e executor.Event) bool {
		_, unknown := e.Body.(executor.Unknown)
		return unknown
	})
	return s.Store.Append(ctx, id, known...)
}

type blind struct{ executor.Store }

func (s blind) Get(ctx context.Context, id string) (executor.Record, error) {
	r, err := s.Store.Get(ctx, id)
	r.LogBytes = 0
	return r, err
}

type lax struct{ executor.Store }

func (s lax) Update(ctx context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	var changed executor.Record
	_, err := s.Store.Update(ctx, id, func(r *executor.Record) {
		change(r)
		changed = r.Clone()
	})
	return changed, err
}

// generous keeps what it is given, and gives that away.
type generous struct {
	executor.Store
	mu    sync.Mutex
	given map[string]executor.SessionRecord
}

func (s *generous) CreateSession(ctx context.Context, r executor.SessionRecord) error {
	if err := s.Store.CreateSession(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = map[string]executor.SessionRecord{}
	}
	s.given[r.ID] = r
	return nil
}

func (s *generous) GetSessionRecord(ctx context.Context, id string) (executor.SessionRecord, error) {
	r, err := s.Store.GetSessionRecord(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if given := s.given[id]; err == nil && len(given.Handle) > 0 && len(r.Handle) > 0 {
		r.Handle = given.Handle
	}
	return r, err
}

type backwards struct{ executor.Store }

func (s backwards) ListSessionRecords(ctx context.Context, owner string) ([]executor.SessionRecord, error) {
	list, err := s.Store.ListSessionRecords(ctx, owner)
	slices.Reverse(list)
	return list, err
}

type nosy struct{ executor.Store }

func (s nosy) ListSessionRecords(ctx context.Context, _ string) ([]executor.SessionRecord, error) {
	return s.Store.ListSessionRecords(ctx, "")
}

type replacing struct{ executor.Store }

func (s replacing) CreateSession(ctx context.Context, r executor.SessionRecord) error {
	if err := s.DeleteSession(ctx, r.ID); err != nil {
		return err
	}
	return s.Store.CreateSession(ctx, r)
}

type resentful struct{ executor.Store }

func (s resentful) GetSessionRecord(ctx context.Context, id string) (executor.SessionRecord, error) {
	r, err := s.Store.GetSessionRecord(ctx, id)
	if executor.CodeOf(err) == executor.NotFound {
		err = executor.Errorf(executor.Purged, "no more")
	}
	return r, err
}

type torn struct{ executor.Store }

func (s torn) UpdateSession(ctx context.Context, id string, change func(*executor.SessionRecord)) (executor.SessionRecord, error) {
	r, err := s.GetSessionRecord(ctx, id)
	if err != nil {
		return r, err
	}
	change(&r)
	runtime.Gosched() // somebody comes between, on one core too
	return s.Store.UpdateSession(ctx, id, func(present *executor.SessionRecord) { *present = r.Clone() })
}

type mixing struct{ executor.Store }

func (s mixing) Delete(ctx context.Context, id string) error {
	if err := s.Store.Delete(ctx, id); err != nil {
		return err
	}
	return s.DeleteSession(ctx, id)
}

func TestTheSuiteFindsEverySaboteurOut(t *testing.T) {
	t.Parallel()
	for i, s := range saboteurs() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHoldTheSuiteAgainstASaboteur$", "-test.v=test2json", "-test.timeout=10m") //nolint:gosec // this very binary
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", sabotageEnv, i))
			text, err := cmd.CombinedOutput()
			if (err != nil) != (len(s.rules) > 0) {
				t.Fatalf("the suite ended with %v\n%s", err, text)
			}
			var failed []string
			for line := range strings.Lines(string(text)) {
				_, name, ok := strings.Cut(line, "--- FAIL: TestHoldTheSuiteAgainstASaboteur/")
				if rule, _, _ := strings.Cut(name, "_"); ok && !slices.Contains(failed, rule) {
					failed = append(failed, rule)
				}
			}
			slices.Sort(failed)
			if !slices.Equal(failed, s.rules) {
				got, _ := json.Marshal(failed)
				t.Errorf("it failed %s, want %q\n%s", got, s.rules, text)
			}
		})
	}
}

// TestHoldTheSuiteAgainstASaboteur is the child of the test above; its failures are what that one looks for.
func TestHoldTheSuiteAgainstASaboteur(t *testing.T) {
	var which int
	if _, err := fmt.Sscan(os.Getenv(sabotageEnv), &which); err != nil {
		t.Skip("only as a child of the test of the saboteurs")
	}
	storetest.Run(t, func(t *testing.T) executor.Store {
		t.Helper()
		return saboteurs()[which].build(memorystore.New(memorystore.Options{}))
	})
}
