package engine

import (
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// queue decides which Execution runs next. It is bounded in total, per owner and per backend. Owners take turns; the places of one owner
// are first in, first out. The Engine's lock guards it.
type queue struct {
	// slots bounds the running places, maxQueued the waiting ones, perOwner both together of one owner (0 = no bound).
	slots, maxQueued, perOwner int
	// capacity bounds the running places by backend; 0 = no bound of its own.
	capacity map[string]int
	// share bounds the running places of one owner. While it is not 0, the last slot of the server, and of each backend, is for an owner
	// that has none running there.
	share int

	// tally counts all places, on those of each backend, and held those of each owner.
	tally
	on   map[string]*tally
	held map[string]int
	// runs counts the running places of each owner, and runsOn those on each backend.
	runs   map[string]int
	runsOn map[ownerOn]int

	// lines are the owners that have a waiting place, in the order of their next turn.
	lines []*line
}

// tally counts places.
type tally struct {
	// arriving counts the running places whose input is still on its way from their caller.
	running, arriving, queued int
}

// ownerOn is an owner on a backend.
type ownerOn struct{ owner, backend string }

type line struct {
	owner   string
	waiting []*place
}

type placeState int

const (
	// reserved: it counts as queued and may not start: its input is still on the way, or it pauses before a retry.
	reserved placeState = iota
	// waiting: it starts when its turn comes.
	waiting
	// granted: it holds a slot.
	granted
	// released: it holds nothing any more.
	released
)

// place is one Execution's claim.
type place struct {
	owner, backend string
	state          placeState
	execution      *execution
	// arriving reports whether the input still comes from the caller while the place holds a slot.
	arriving bool
}

func newQueue(slots, maxQueued, perOwner int) *queue {
	return &queue{
		slots: slots, maxQueued: maxQueued, perOwner: perOwner,
		capacity: map[string]int{}, on: map[string]*tally{}, held: map[string]int{}, runs: map[string]int{}, runsOn: map[ownerOn]int{},
	}
}

// at returns the counts of a backend.
func (q *queue) at(backend string) *tally {
	t := q.on[backend]
	if t == nil {
		t = &tally{}
		q.on[backend] = t
	}
	return t
}

// move puts p into another state and keeps the counts.
func (q *queue) move(p *place, to placeState, arriving bool) {
	q.count(p, -1)
	p.state, p.arriving = to, arriving
	q.count(p, +1)
}

// count adds n to the counts to which p contributes.
func (q *queue) count(p *place, n int) {
	if p.state == granted {
		on := ownerOn{p.owner, p.backend}
		if q.runs[p.owner] += n; q.runs[p.owner] == 0 {
			delete(q.runs, p.owner)
		}
		if q.runsOn[on] += n; q.runsOn[on] == 0 {
			delete(q.runsOn, on)
		}
	}
	for _, t := range []*tally{&q.tally, q.at(p.backend)} {
		switch p.state {
		case reserved, waiting:
			t.queued += n
		case granted:
			t.running += n
			if p.arriving {
				t.arriving += n
			}
		case released:
		}
	}
}

// startKind says whether and how a place may be granted at once.
type startKind int

const (
	// startLater: the input is spooled first.
	startLater startKind = iota
	// startArriving: the Execution may start at once. Its caller, who may be slow, still sends the input.
	startArriving
	// startNow: the Execution may start at once. Its input is complete, or there is none.
	startNow
)

// reserve gives owner a place. The place is granted if kind allows that and it can start at once without passing a waiting one; else it
// is reserved. A nil place means that a bound is reached; why names the bound.
func (q *queue) reserve(owner, backend string, kind startKind) (p *place, why string) {
	if why := q.refusal(owner, backend); why != "" {
		return nil, why
	}
	p = q.adopt(owner, backend)
	if kind != startLater && q.room(owner, backend) && !q.awaited() && (kind == startNow || q.roomToArrive(backend)) {
		q.move(p, granted, kind == startArriving)
	}
	return p, ""
}

// refusal names the bound because of which there is no place; "" if there is one. While enough slots are free for all queued places, a
// new one needs no room in the queue, but for its owner's share of them.
func (q *queue) refusal(owner, backend string) string {
	if q.perOwner > 0 && q.held[owner] >= q.perOwner {
		return "your executions, waiting and running"
	}
	if q.queued < q.maxQueued {
		return ""
	}
	free := q.running+q.queued < q.slots
	if c := q.capacity[backend]; backend != "" && c > 0 {
		free = free && q.at(backend).running+q.at(backend).queued < c
	}
	if !free {
		return "the queue"
	}
	own := q.held[owner]
	last := q.slots-q.running-q.queued <= 1
	if c := q.capacity[backend]; c > 0 && q.runsOn[ownerOn{owner, backend}] > 0 {
		last = last || q.at(backend).running+q.at(backend).queued >= c-1
	}
	if q.share > 0 && own > 0 && (own >= q.share || last) {
		return "your running executions"
	}
	return ""
}

// adopt gives owner a reserved place, beyond all bounds: an earlier life of the server has accepted its Execution.
func (q *queue) adopt(owner, backend string) *place {
	p := &place{owner: owner, backend: backend}
	q.held[owner]++
	q.count(p, +1)
	return p
}

// line returns the index of owner's line, or -1.
func (q *queue) line(owner string) int {
	return slices.IndexFunc(q.lines, func(l *line) bool { return l.owner == owner })
}

// wait puts a reserved place at the end of its owner's line, or at its front.
func (q *queue) wait(p *place, first bool) {
	q.move(p, waiting, false)
	i := q.line(p.owner)
	if i < 0 {
		i = len(q.lines)
		q.lines = append(q.lines, &line{owner: p.owner})
	}
	l := q.lines[i]
	at := len(l.waiting)
	if first {
		at = 0
	}
	l.waiting = slices.Insert(l.waiting, at, p)
}

// next grants the place whose turn it is, and puts its owner's line last. It returns nil if none can start.
func (q *queue) next() *place {
	if q.running >= q.slots {
		return nil
	}
	for i, l := range q.lines {
		for j, p := range l.waiting {
			if !q.room(p.owner, p.backend) {
				continue
			}
			if q.leave(i, j) {
				q.lines = append(slices.Delete(q.lines, i, i+1), l)
			}
			q.move(p, granted, false)
			return p
		}
	}
	return nil
}

// crowded returns the waiting places that only the capacities of their backends keep from a slot.
func (q *queue) crowded() (places []*place) {
	if q.running >= q.slots {
		return nil
	}
	for _, l := range q.lines {
		for _, p := range l.waiting {
			if !q.capable(p.backend) {
				places = append(places, p)
			}
		}
	}
	return places
}

// leave takes place j out of line i. An empty line goes away; leave reports whether the line is still there.
func (q *queue) leave(i, j int) bool {
	l := q.lines[i]
	l.waiting = slices.Delete(l.waiting, j, j+1)
	if len(l.waiting) == 0 {
		q.lines = slices.Delete(q.lines, i, i+1)
		return false
	}
	return true
}

// take grants a reserved place at once, beyond all bounds: its program runs already.
func (q *queue) take(p *place) {
	if p.state == reserved {
		q.move(p, granted, false)
	}
}

// transfer gives p another backend.
func (q *queue) transfer(p *place, backend string) {
	q.count(p, -1)
	p.backend = backend
	q.count(p, +1)
}

// forget drops the counts of a backend that has no place any more.
func (q *queue) forget(backend string) {
	delete(q.capacity, backend)
	delete(q.on, backend)
}

// arrived notes that all of p's input is there. Idempotent.
func (q *queue) arrived(p *place) { q.move(p, p.state, false) }

// pause takes p's slot away and leaves p reserved.
func (q *queue) pause(p *place) { q.move(p, reserved, false) }

// release gives p back, whatever its state. Idempotent.
func (q *queue) release(p *place) {
	switch p.state {
	case released:
		return
	case waiting:
		i := q.line(p.owner)
		q.leave(i, slices.Index(q.lines[i].waiting, p))
	case reserved, granted:
	}
	q.move(p, released, false)
	if q.held[p.owner]--; q.held[p.owner] == 0 {
		delete(q.held, p.owner)
	}
}

// capable reports whether a slot on backend is free, whoever may have it.
func (q *queue) capable(backend string) bool {
	c := q.capacity[backend]
	return q.running < q.slots && (c <= 0 || q.at(backend).running < c)
}

// room reports whether a slot on backend is free for owner.
func (q *queue) room(owner, backend string) bool {
	if !q.capable(backend) {
		return false
	}
	mine, c := q.runs[owner], q.capacity[backend]
	switch {
	case q.share <= 0 || mine == 0:
		return true
	case mine >= q.share || q.slots-q.running == 1:
		return false
	}
	return c <= 0 || c-q.at(backend).running > 1 || q.runsOn[ownerOn{owner, backend}] == 0
}

// roomToArrive reports whether one more slot may be held by a caller that is still sending. At most half of the slots are, so that slow
// senders do not keep out Executions whose input is there. An input for which there is no such slot is spooled, without a slot.
func (q *queue) roomToArrive(backend string) bool {
	c := q.capacity[backend]
	return q.arriving < q.slots/2 && (c <= 0 || q.at(backend).arriving < c/2)
}

// awaited reports whether a waiting place could take a slot.
func (q *queue) awaited() bool {
	for _, l := range q.lines {
		for _, p := range l.waiting {
			if q.room(p.owner, p.backend) {
				return true
			}
		}
	}
	return false
}

// errFull is the error where no place is left. It has a RetryAfter, which an input that is too large has not.
func errFull(what string, after time.Duration) error {
	return &executor.Error{
		Code: executor.Exhausted, Op: "submit", RetryAfter: after,
		Message: "no place left: the bound on " + what + " is reached",
	}
}
