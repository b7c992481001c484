package engine

import (
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// queue decides who runs next. It is bounded in total, per owner and per backend, and fair: owners take turns, an
// owner's own places are first in, first out. It has no lock; the Engine's guards it.
type queue struct {
	// slots bounds what runs, maxQueued what waits, perOwner an owner's waiting and running together (0 = no bound).
	slots, maxQueued, perOwner int
	// capacity bounds what runs on a backend; none or 0 = no bound of its own.
	capacity map[string]int

	running   int
	runningOn map[string]int
	// arriving counts the granted places whose input is still on its way from their caller.
	arriving   int
	arrivingOn map[string]int
	queued     int
	queuedOn   map[string]int
	held       map[string]int

	// lines are the owners with a waiting place; turn holds them in the order of their next turn.
	lines map[string]*line
	turn  []*line
}

type line struct {
	owner   string
	waiting []*place
}

type placeState int

const (
	// reserved: counts as queued, may not be started yet: its input is still on the way, or it pauses before a retry.
	reserved placeState = iota
	// waiting: starts when it is its turn.
	waiting
	// granted: holds a slot.
	granted
	// released: holds nothing any more.
	released
)

// place is one Execution's claim.
type place struct {
	owner, backend string
	state          placeState
	execution      *execution
	// arriving: its input comes from its caller while it holds a slot.
	arriving bool
}

func newQueue(slots, maxQueued, perOwner int) *queue {
	return &queue{
		slots: slots, maxQueued: maxQueued, perOwner: perOwner,
		capacity:  map[string]int{},
		runningOn: map[string]int{}, arrivingOn: map[string]int{}, queuedOn: map[string]int{}, held: map[string]int{},
		lines: map[string]*line{},
	}
}

// startKind says whether a place may be granted at once.
type startKind int

const (
	// startLater: its input is spooled first.
	startLater startKind = iota
	// startArriving: its input, if it is granted, comes from its caller meanwhile, who may be slow.
	startArriving
	// startNow: its input is at hand, or there is none.
	startNow
)

// reserve gives owner a place: granted, if kind allows it and it can start at once without passing anybody who waits, else
// reserved. nil means full; why says of what.
func (q *queue) reserve(owner, backend string, kind startKind) (p *place, why string) {
	if why := q.refusal(owner, backend); why != "" {
		return nil, why
	}
	p = &place{owner: owner, backend: backend}
	q.held[owner]++
	if kind != startLater && q.room(backend) && !q.awaited(backend) && (kind == startNow || q.roomToArrive(backend)) {
		q.grant(p)
		if p.arriving = kind == startArriving; p.arriving {
			q.arriving++
			q.arrivingOn[backend]++
		}
	} else {
		q.queued++
		q.queuedOn[backend]++
	}
	return p, ""
}

// refusal says why there is no place; "" if there is one. Places that wait only for their input do not need the queue's
// own room while as many slots are free.
func (q *queue) refusal(owner, backend string) string {
	if q.perOwner > 0 && q.held[owner] >= q.perOwner {
		return "your executions, waiting and running"
	}
	if q.queued < q.maxQueued {
		return ""
	}
	free := q.running+q.queued < q.slots
	if c := q.capacity[backend]; backend != "" && c > 0 {
		free = free && q.runningOn[backend]+q.queuedOn[backend] < c
	}
	if !free {
		return "the queue"
	}
	return ""
}

// adopt gives a place to an Execution that was accepted in an earlier life, whatever the bounds say.
func (q *queue) adopt(owner, backend string) *place {
	p := &place{owner: owner, backend: backend}
	q.held[owner]++
	q.queued++
	q.queuedOn[backend]++
	return p
}

// wait puts a reserved place at the end of its owner's line, or at its front.
func (q *queue) wait(p *place, first bool) {
	p.state = waiting
	l := q.lines[p.owner]
	if l == nil {
		l = &line{owner: p.owner}
		q.lines[p.owner] = l
		q.turn = append(q.turn, l)
	}
	if first {
		l.waiting = slices.Insert(l.waiting, 0, p)
	} else {
		l.waiting = append(l.waiting, p)
	}
}

// next grants the place whose turn it is; nil if none can start.
func (q *queue) next() *place {
	if q.running >= q.slots {
		return nil
	}
	for i, l := range q.turn {
		for j, p := range l.waiting {
			if !q.room(p.backend) {
				continue
			}
			q.leave(l, i, j)
			q.queued--
			q.queuedOn[p.backend]--
			q.grant(p)
			return p
		}
	}
	return nil
}

// leave takes place j out of line i of the turn; the line goes to the end of the turn, or away if it is empty.
func (q *queue) leave(l *line, i, j int) {
	q.turn = slices.Delete(q.turn, i, i+1)
	if j == 0 {
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
	} else {
		l.waiting = slices.Delete(l.waiting, j, j+1)
	}
	if len(l.waiting) > 0 {
		q.turn = append(q.turn, l)
	} else {
		delete(q.lines, l.owner)
	}
}

func (q *queue) grant(p *place) {
	p.state = granted
	q.running++
	q.runningOn[p.backend]++
}

// take grants a reserved place at once, whatever the bounds say: its program runs already.
func (q *queue) take(p *place) {
	if p.state == reserved {
		q.queued--
		q.queuedOn[p.backend]--
		q.grant(p)
	}
}

// arrived notes that p's input is all there. Idempotent.
func (q *queue) arrived(p *place) {
	if p.arriving {
		p.arriving = false
		q.arriving--
		q.arrivingOn[p.backend]--
	}
}

// pause takes a slot away and leaves the place reserved.
func (q *queue) pause(p *place) {
	q.arrived(p)
	q.running--
	q.runningOn[p.backend]--
	q.queued++
	q.queuedOn[p.backend]++
	p.state = reserved
}

// release gives a place back, whatever its state. Idempotent.
func (q *queue) release(p *place) {
	q.arrived(p)
	switch p.state {
	case released:
		return
	case granted:
		q.running--
		q.runningOn[p.backend]--
	case waiting:
		q.unqueue(p)
		fallthrough
	case reserved:
		q.queued--
		q.queuedOn[p.backend]--
	}
	p.state = released
	if q.held[p.owner]--; q.held[p.owner] == 0 {
		delete(q.held, p.owner)
	}
}

// unqueue takes a waiting place out of its line; the line keeps its turn.
func (q *queue) unqueue(p *place) {
	l := q.lines[p.owner]
	l.waiting = slices.DeleteFunc(l.waiting, func(other *place) bool { return other == p })
	if len(l.waiting) == 0 {
		delete(q.lines, p.owner)
		q.turn = slices.DeleteFunc(q.turn, func(other *line) bool { return other == l })
	}
}

func (q *queue) room(backend string) bool {
	c := q.capacity[backend]
	return q.running < q.slots && (c <= 0 || q.runningOn[backend] < c)
}

// roomToArrive reports whether one more slot may be held by a caller that is still sending. At most half of them are: the
// others are for those who have sent, however slow the senders are and however many. What finds none is spooled, which
// holds no slot.
func (q *queue) roomToArrive(backend string) bool {
	c := q.capacity[backend]
	return q.arriving < q.slots/2 && (c <= 0 || q.arrivingOn[backend] < c/2)
}

// awaited reports whether somebody waits who could take a slot on backend.
func (q *queue) awaited(backend string) bool {
	for _, l := range q.turn {
		for _, p := range l.waiting {
			if p.backend == backend || q.room(p.backend) {
				return true
			}
		}
	}
	return false
}

// errFull says that there is no place. RetryAfter is set, which tells it from an input that is too large.
func errFull(what string, after time.Duration) error {
	return &executor.Error{
		Code: executor.Exhausted, Op: "submit", RetryAfter: after,
		Message: "no place left: the bound on " + what + " is reached",
	}
}
