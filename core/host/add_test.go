package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/host"
)

func TestAnEntryIsAddedBesideItsFormerOneAndThatIsRemoved(t *testing.T) {
	t.Parallel()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"})})
	old := h.Backends()["a"]
	next, err := h.Add(t.Context(), "a", entries(map[string]string{"a": "{}"})["a"])
	if err != nil {
		t.Fatal(err)
	}
	oldPID, pid := served(t, old), served(t, next)
	if oldPID == pid {
		t.Errorf("both are process %d", pid)
	}
	for b, want := range map[executor.Backend]int{old: 1, next: 2} {
		if info, err := b.Info(t.Context()); err != nil || info.Generation != want {
			t.Errorf("generation %d, %v, want %d", info.Generation, err, want)
		}
	}
	if h.Backends()["a"] != next {
		t.Error("the name is still the former one's")
	}
	ctx, stop := context.WithCancelCause(t.Context())
	_, ended := runUntil(t, ctx, old)
	removed := make(chan error, 1)
	go func() { removed <- h.Remove(t.Context(), old) }()
	select {
	case err := <-removed:
		t.Fatalf("it was removed while a program ran: %v", err)
	case err := <-ended:
		t.Fatalf("the program ended: %v", err)
	default:
	}
	stop(errors.New("enough"))
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if _, err := old.Info(t.Context()); executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "backend a is down: the backend was removed") {
		t.Errorf("after its removal: %v", err)
	}
	if again := served(t, next); again != pid {
		t.Errorf("the other one became process %d", again)
	}
	if all := h.Status(); len(all) != 1 || all[0].PID != pid {
		t.Errorf("status %+v", all)
	}
	if err := h.Remove(t.Context(), old); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestAnEntryThatDoesNotComeUpLeavesNothing(t *testing.T) {
	t.Parallel()
	h := started(t, host.Options{Entries: entries(map[string]string{"a": "{}"})})
	before := served(t, h.Backends()["a"])
	for name, entry := range map[string]config.Backend{
		"a refused section": entries(map[string]string{"a": `{"refuse":true}`})["a"],
		"half of a program": {Path: "/bin/true"},
	} {
		if _, err := h.Add(t.Context(), "a", entry); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := h.Status(); len(all) != 1 || all[0].PID != before {
		t.Errorf("status %+v", all)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := h.Add(t.Context(), "b", entries(map[string]string{"b": "{}"})["b"]); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("after Close: %v", err)
	}
}
