package jobs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheProgramsEndIsAResultAndNomadsIsAnError(t *testing.T) {
	t.Parallel()
	event := func(kind, words string, details ...string) *api.TaskEvent {
		e := &api.TaskEvent{Type: kind, DisplayMessage: words, Details: map[string]string{}}
		for i := 0; i < len(details); i += 2 {
			e.Details[details[i]] = details[i+1]
		}
		return e
	}
	for name, c := range map[string]struct {
		client, desired string
		events          []*api.TaskEvent
		started, asked  bool
		status          executor.Status
		code            executor.Code // of the Failure, or of the error without a status
		field, words    string
	}{
		"killed by the caller":     {asked: true, started: true, status: executor.StatusKilled},
		"killed before it started": {asked: true, status: executor.StatusKilled},
		"out of memory": {
			started: true, events: []*api.TaskEvent{event(api.TaskTerminated, "Exit Code: 137", "oom_killed", "true")},
			status: executor.StatusOutOfMemory, code: executor.Exhausted, field: memoryField,
		},
		"the runner ran out of memory before the program": {
			events: []*api.TaskEvent{event(api.TaskTerminated, "Exit Code: 137, OOM", "oom_killed", "true")}, code: executor.Unavailable, words: "not started",
		},
		"the runner was killed": {
			started: true, events: []*api.TaskEvent{event(api.TaskTerminated, "Exit Code: 137", "oom_killed", "false")}, code: executor.Unavailable, words: "Exit Code: 137",
		},
		"no such image": {
			events: []*api.TaskEvent{event(api.TaskDriverFailure, "", "driver_error", "Failed to pull `no/such`: Error response from daemon: pull access denied for no/such")},
			status: executor.StatusFailed, code: executor.Invalid, field: "docker_image",
		},
		"the registry is away": {
			events: []*api.TaskEvent{event(api.TaskDriverFailure, "", "driver_error", "Failed to pull `x`: dial tcp: i/o timeout")},
			status: executor.StatusFailed, code: executor.Unavailable, field: "docker_image",
		},
		"the driver failed": {
			events: []*api.TaskEvent{event(api.TaskDriverFailure, "no space left", "driver_error", "no space left")}, code: executor.Unavailable, words: "no space left",
		},
		"an artifact did not come": {
			events: []*api.TaskEvent{event(api.TaskArtifactDownloadFailed, "bad response code: 410")}, code: executor.Unavailable, words: "410",
		},
		"its files were removed": {
			events: []*api.TaskEvent{event(api.TaskTerminated, "Exit Code: 0", "exit_code", "0")}, code: executor.Unavailable, words: "gc_max_allocs",
		},
		"an image's words after the program started": {
			started: true, events: []*api.TaskEvent{event(api.TaskDriverFailure, "no such image", "driver_error", "no such image")}, code: executor.Unavailable, words: "the program was lost",
		},
		"the server has stopped it":    {desired: "alloc not needed", code: executor.Unavailable, words: "alloc not needed"},
		"nothing is known of its task": {code: executor.Unavailable, words: "words of the client"},
		"its folders were not made":    {events: []*api.TaskEvent{event(api.TaskSetupFailure, "failed to build task directory")}, code: executor.Unavailable, words: "task directory"},
		"it ended well, and then did not": {
			events: []*api.TaskEvent{event(api.TaskTerminated, "Exit Code: 0", "exit_code", "0"), event(api.TaskTerminated, "Exit Code: 1", "exit_code", "1")},
			code:   executor.Unavailable, words: "not started",
		},
		"the node is lost": {client: api.AllocClientStatusLost, started: true, code: executor.Unavailable, words: "node n1"},
	} {
		a := &allocation{NodeName: "n1", Client: c.client, ClientWords: "words of the client", DesiredWords: c.desired, Tasks: map[string]*api.TaskState{taskProgram: {Events: c.events}}}
		r, err := classify(a, taskProgram, c.started, c.asked, 1<<20)
		if c.status == "" {
			if executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v, want %s with %q", name, err, c.code, c.words)
			}
			continue
		}
		if err != nil || r.Status != c.status || (r.Failure == nil) != (c.code == "") || r.Failure != nil && (r.Failure.Code != c.code || r.Failure.Field != c.field) {
			t.Errorf("%s: %v, %+v %+v", name, err, r, r.Failure)
		}
		if signal := map[bool]string{true: "SIGKILL"}[c.started]; r.Signal != signal {
			t.Errorf("%s: the signal is %q, want %q", name, r.Signal, signal)
		}
	}
}

func TestAnErrorThatPassesIsTriedAgain(t *testing.T) {
	t.Parallel()
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }))
	defer server.Close()
	client, err := api.NewClient(&api.Config{Address: server.URL, TLSConfig: &api.TLSConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, c := range []struct {
		status int
		body   string
		passes bool
	}{
		{500, "No cluster leader", true}, {500, "1 error occurred: Missing job datacenters", false}, {503, "", true}, {502, "", true}, {501, "", true}, {429, "", true},
		{404, "No path to node", true}, {404, "job not found", false}, {403, "Permission denied", false},
	} {
		status, body = c.status, c.body
		if _, _, err := client.Jobs().Info("x", nil); temporary(err) != c.passes {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
	}
	if !temporary(errors.New("connection refused")) {
		t.Error("Nomad away is not temporary")
	}
}
