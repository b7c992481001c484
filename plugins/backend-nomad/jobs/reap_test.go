package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// jobServer is a Nomad with jobs. It notes what is done to them.
type jobServer struct {
	jobs   []*api.JobListStub
	allocs map[string]time.Time // when the allocation of a job was last modified, by the job's id; none: the job is not found

	mu    sync.Mutex
	calls []string
}

// ServeHTTP implements http.Handler.
func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	var answer any = map[string]any{}
	switch {
	case r.URL.Path == "/v1/jobs" && r.URL.Query().Get("prefix") == jobPrefix && r.URL.Query().Get("meta") == "true":
		answer = s.jobs
	case r.Method == http.MethodDelete:
		s.calls = append(s.calls, fmt.Sprintf("stop %s, purge %s", parts[3], r.URL.Query().Get("purge")))
	case strings.HasSuffix(r.URL.Path, "/gc"):
		s.calls = append(s.calls, "forget "+parts[4])
	case strings.HasSuffix(r.URL.Path, "/evaluations"):
		answer = []any{}
	case strings.HasSuffix(r.URL.Path, "/allocations"):
		at, has := s.allocs[parts[3]]
		if !has {
			http.Error(w, "job not found", http.StatusNotFound)
			return
		}
		answer = []*api.AllocationListStub{{ID: "of-" + parts[3], ModifyTime: at.UnixNano()}, {ID: "first", ModifyTime: at.Add(-time.Hour).UnixNano()}}
	default:
		http.Error(w, "unexpected: "+r.URL.String(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// said returns what was done since the last call.
func (s *jobServer) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.calls = nil }()
	return s.calls
}

// reaping returns a backend with the jobs of s.
func reaping(t *testing.T, s *jobServer) *Backend {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, inputsFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Backend{name: "nomad", instance: "here", config: Default(), log: log, cluster: clusterOf(t, s), transfer: &transfer{folder: folder, log: log}}
}

func TestEndedJobsArePurgedAndForgottenOnesStopped(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	c := Default()
	s := &jobServer{allocs: map[string]time.Time{}}
	add := func(id, status, instance, backend string, submitted, modified time.Duration) {
		id = jobID(id)
		s.jobs = append(s.jobs, &api.JobListStub{
			ID: id, Status: status, SubmitTime: now.Add(-submitted).UnixNano(), Meta: map[string]string{metaInstance: instance, metaBackend: backend},
		})
		s.allocs[id] = now.Add(-modified)
	}
	add("long", "dead", "here", "nomad", 2*time.Hour, c.purgeAfter())
	add("recent", "dead", "here", "nomad", 2*time.Hour, c.purgeAfter()-time.Second)
	add("never", "dead", "here", "nomad", c.purgeAfter()-time.Second, 24*time.Hour) // a job without an allocation of its own
	add("foreign", "dead", "there", "nomad", 2*time.Hour, time.Hour)
	add("other", "dead", "here", "nomad-2", 2*time.Hour, time.Hour)
	add("runs", "running", "here", "nomad", 24*time.Hour, time.Hour)
	add("waits", "pending", "here", "nomad", c.queueTimeout()+time.Minute, time.Hour)
	add("waits-long", "pending", "here", "nomad", c.queueTimeout()+time.Minute+time.Second, time.Hour)
	b := reaping(t, s)
	input := filepath.Join(b.transfer.folder, inputsFolder, "old")
	if err := errors.Join(os.Mkdir(input, 0o700), os.Chtimes(input, now, now.Add(-24*time.Hour))); err != nil {
		t.Fatal(err)
	}
	ended := map[string]time.Time{"gone": now, jobID("runs"): now} // it ran again under its name
	if err := b.sweep(t.Context(), now, ended); err != nil {
		t.Fatal(err)
	}
	purges := func(id string) []string {
		return []string{"forget of-" + jobID(id), "forget first", "stop " + jobID(id) + ", purge true"}
	}
	if got, want := s.said(), append(purges("long"), "stop "+jobID("waits-long")+", purge false"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(ended)), []string{jobID("long"), jobID("never"), jobID("recent")}; !slices.Equal(got, want) {
		t.Errorf("the ends of %q are remembered, want %q", got, want)
	}
	if _, err := os.Stat(input); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old input is still there: %v", err)
	}
	s.jobs = s.jobs[1:3]
	if err := b.sweep(t.Context(), now.Add(time.Second), ended); err != nil {
		t.Fatal(err)
	}
	if got, want := s.said(), append(purges("never"), purges("recent")...); !slices.Equal(got, want) || b.purged.Load() != 3 {
		t.Errorf("%q, want %q; %d were counted", got, want, b.purged.Load())
	}
}

func TestAJobThatRunsHereIsNotReaped(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	id := jobID("exe_1")
	s := &jobServer{allocs: map[string]time.Time{id: now.Add(-time.Hour)}}
	s.jobs = []*api.JobListStub{{ID: id, Status: "dead", SubmitTime: now.Add(-2 * time.Hour).UnixNano(), Meta: map[string]string{metaInstance: "here", metaBackend: "nomad"}}}
	b := reaping(t, s)
	_, leave, err := b.running.Enter(t.Context(), "exe_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.sweep(t.Context(), now, map[string]time.Time{}); err != nil || len(s.said()) > 0 {
		t.Errorf("%q, %v", s.said(), err)
	}
	leave()
	if err := b.sweep(t.Context(), now, map[string]time.Time{}); err != nil || len(s.said()) != 3 {
		t.Errorf("after its end: %v", err)
	}
}

func TestAJobWithoutAllocationsIsPurged(t *testing.T) {
	t.Parallel()
	s := &jobServer{}
	if err := reaping(t, s).purge(t.Context(), jobID("exe_1")); err != nil {
		t.Error(err)
	}
	if got := s.said(); !slices.Equal(got, []string{"stop " + jobID("exe_1") + ", purge true"}) {
		t.Errorf("%q", got)
	}
}
