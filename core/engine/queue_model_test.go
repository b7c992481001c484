package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTheCountsOfTheQueueFollowItsPlaces does anything that the Engine does with places, in any order, and counts them anew each time.
func TestTheCountsOfTheQueueFollowItsPlaces(t *testing.T) {
	t.Parallel()
	owners, backends := []string{"a", "b", "c"}, []string{"x", "y"}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		q := newQueue(4, 6, 5)
		q.capacity["x"] = 3
		var places []*place
		adopted := 0
		of := func(states ...placeState) *place {
			var list []*place
			for _, p := range places {
				if slices.Contains(states, p.state) {
					list = append(list, p)
				}
			}
			if len(list) == 0 {
				return nil
			}
			return list[random.IntN(len(list))]
		}
		for step := range 300 {
			owner, backend := owners[random.IntN(3)], backends[random.IntN(2)]
			switch random.IntN(9) {
			case 0, 1, 2:
				kind := []startKind{startLater, startArriving, startNow}[random.IntN(3)]
				if p, why := q.reserve(owner, backend, kind); p != nil {
					places = append(places, p)
				} else if why == "" {
					t.Fatal("a place is refused without a reason")
				}
			case 3:
				if p := of(reserved); p != nil {
					q.wait(p, random.IntN(2) == 0)
				}
			case 4:
				for p := q.next(); p != nil; p = q.next() {
					if p.state != granted {
						t.Fatalf("next returns a place in state %d", p.state)
					}
				}
				for _, p := range places {
					if p.state == waiting && q.room(p.owner, p.backend) {
						t.Fatal("a place waits although it has a slot")
					}
				}
			case 5:
				if p := of(granted); p != nil {
					q.arrived(p)
				}
			case 6:
				if p := of(granted); p != nil {
					q.pause(p)
				}
			case 7:
				if p := of(reserved, waiting, granted, released); p != nil {
					q.release(p)
				}
			case 8:
				if adopted < 5 {
					adopted++
					p := q.adopt(owner, backend)
					places = append(places, p)
					if random.IntN(2) == 0 {
						q.take(p)
					}
				}
			}
			if !sameCounts(t, q, places) {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		for _, p := range places {
			q.release(p)
		}
		if !sameCounts(t, q, nil) {
			t.Fatalf("seed %d, at the end", seed)
		}
	}
}

// sameCounts reports whether q's counts are those of places.
func sameCounts(t *testing.T, q *queue, places []*place) bool {
	t.Helper()
	var all tally
	on, held, lines := map[string]tally{}, map[string]int{}, map[string]int{}
	for _, p := range places {
		c := on[p.backend]
		switch p.state {
		case granted:
			all.running++
			c.running++
		case waiting:
			lines[p.owner]++
			fallthrough
		case reserved:
			all.queued++
			c.queued++
		case released:
			if p.arriving {
				t.Error("a place that was released is arriving")
			}
			continue
		}
		if p.arriving {
			all.arriving++
			c.arriving++
		}
		held[p.owner]++
		on[p.backend] = c
	}
	same := q.tally == all && maps.Equal(q.held, held)
	for _, backend := range []string{"x", "y"} {
		same = same && *q.at(backend) == on[backend]
	}
	turns := map[string]int{}
	for _, l := range q.lines {
		turns[l.owner] += len(l.waiting)
	}
	if same = same && maps.Equal(turns, lines) && len(q.lines) == len(turns); !same {
		t.Errorf("the queue counts %+v, on x %+v, on y %+v, held %v, waiting %v", q.tally, *q.at("x"), *q.at("y"), q.held, turns)
	}
	return same
}
