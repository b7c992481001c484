package engine

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func TestSlowSendersLeaveHalfOfTheSlotsToThoseWhoHaveSent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 4, MaxQueued: 10}}})
		archive := tarOf(t, "main.py", "print sent")
		var callers sync.WaitGroup
		var rest []*io.PipeWriter
		var ids []string
		var mu sync.Mutex
		for range 6 {
			body, client := io.Pipe()
			rest = append(rest, client)
			callers.Go(func() {
				x, err := r.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: sourceOf(body)})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, x.ID)
			})
			if _, err := client.Write(archive[:512]); err != nil { // and then nothing for long
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.wantSlots(2, 2)
		if res := r.result(r.submit(t.Context(), "exit 0").ID); res.Status != executor.StatusSucceeded || res.Phases.Queue != 0 {
			t.Errorf("behind slow senders: %+v", res)
		}
		ready := once(archive)
		ready.Replayable = true
		x, err := r.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: ready})
		if err != nil {
			t.Fatal(err)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || res.Phases.Queue != 0 {
			t.Errorf("with its input at hand: %+v", res)
		}

		for _, client := range rest {
			if _, err := client.Write(archive[512:]); err != nil {
				t.Fatal(err)
			}
			client.Close()
		}
		callers.Wait()
		for _, id := range ids {
			if res := r.result(id); res.Status != executor.StatusSucceeded {
				t.Errorf("a slow sender got %+v", res)
			}
		}
		r.wantIdle()
		r.wantSlots(0, 0)
		r.wantBlobs(0)
	})
}

func TestASenderThatGoesAwayGivesItsPlaceToTheNextOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 10}}})
		for range 3 {
			body, client := io.Pipe()
			done := make(chan error)
			go func() {
				_, err := r.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: sourceOf(body)})
				done <- err
			}()
			synctest.Wait()
			r.wantSlots(1, 1)
			client.CloseWithError(io.ErrUnexpectedEOF)
			if err := <-done; err == nil {
				t.Error("an input that broke was accepted")
			}
			r.wantIdle()
			r.wantSlots(0, 0)
		}
	})
}

func TestABackendsOwnSlotsAreSharedAlike(t *testing.T) {
	t.Parallel()
	q := newQueue(100, 10, 0)
	q.capacity["small"] = 3
	for i, want := range []placeState{granted, reserved, reserved} {
		if p, why := q.reserve("o", "small", startArriving); p == nil || p.state != want {
			t.Fatalf("sender %d: %+v (%s)", i, p, why)
		}
	}
	if p, _ := q.reserve("o", "small", startNow); p == nil || p.state != granted {
		t.Errorf("one that has sent: %+v", p)
	}
	if p, _ := q.reserve("o", "large", startArriving); p == nil || p.state != granted {
		t.Errorf("on another backend: %+v", p)
	}
}

func (r *rig) wantSlots(running, arriving int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queue; q.running != running || q.arriving != arriving {
		r.t.Errorf("%d slots are held, %d by senders; want %d and %d", q.running, q.arriving, running, arriving)
	}
}
