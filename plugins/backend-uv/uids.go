package uvbackend

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// uids is an inclusive range of uids.
type uids struct{ first, last int }

func (u uids) String() string { return fmt.Sprintf("%d-%d", u.first, u.last) }
func (u uids) count() int     { return u.last - u.first + 1 }

func (u uids) has(uid int) bool { return u.first <= uid && uid <= u.last }

// UIDs returns the range of uids that run programs. ok is false if programs run as the plugin's own user: without root, or with
// the isolation none. ok is also false for a range that validate refuses.
func (c Config) UIDs() (first, last int, ok bool) {
	c = c.withDefaults()
	if os.Geteuid() != 0 || c.Isolation == IsolationNone {
		return 0, 0, false
	}
	r, err := parseUIDs(c.RunAs)
	return r.first, r.last, err == nil
}

// uidPool gives the uids of a range to slots, and to the processes that ask interpreters for their versions.
type uidPool struct {
	dir  string // of the lock files
	uids uids
	// end kills leftover processes of this installation under a uid. It fails if other processes are left. Tests replace it.
	end   func(uid int) error
	log   *slog.Logger
	mu    sync.Mutex
	stuck []*uidClaim // claims whose uid could not be cleared
}

func newUIDPool(dir string, r uids, marks sandbox.Marks, log *slog.Logger) *uidPool {
	return &uidPool{dir: dir, uids: r, log: log, end: func(uid int) error {
		_, err := sandbox.KillLeftovers(marks, uid)
		return err
	}}
}

// take claims a uid of r that has no process. It skips a uid that cannot be cleared. Codes: exhausted.
func (p *uidPool) take(r uids) (*uidClaim, error) {
	for {
		c, err := claimUID(p.dir, r)
		if err != nil {
			return nil, err
		}
		if p.cleared(c) {
			return c, nil
		}
	}
}

// cleared ends leftover processes under a uid, and reports whether the uid has no process then. If it has, the pool keeps the
// claim until close, so that nobody gets the uid. The mark stays, so that the next start tries again.
func (p *uidPool) cleared(c *uidClaim) bool {
	err := p.end(c.uid)
	if err == nil {
		return true
	}
	p.log.Warn("uid not used any more: its processes do not end", "uid", c.uid, "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = append(p.stuck, c)
	return false
}

// sweep ends leftover processes under uids whose last holder ended without release.
func (p *uidPool) sweep() {
	if err := sweepUIDs(p.dir, p.uids, p.end); err != nil {
		p.log.Warn("leftover processes not ended", "error", err)
	}
}

// close ends the claims of uids that could not be cleared. The slots have released all other claims.
func (p *uidPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.stuck {
		c.lock.Close() // the mark stays
	}
	p.stuck = nil
}

func parseUIDs(text string) (uids, error) {
	first, last, found := strings.Cut(text, "-")
	a, errA := strconv.Atoi(strings.TrimSpace(first))
	b, errB := a, errA
	if found {
		b, errB = strconv.Atoi(strings.TrimSpace(last))
	}
	switch {
	case errA != nil || errB != nil:
		return uids{}, fmt.Errorf("must be a range of uids FIRST-LAST (got %q)", text)
	case a < 1 || b < a:
		return uids{}, fmt.Errorf("must be a range of uids FIRST-LAST with 0 < FIRST <= LAST (got %q)", text)
	case b-a >= 65536 || b > 1<<31-2:
		return uids{}, fmt.Errorf("must have at most 65536 uids below 2147483647 (got %q)", text)
	}
	return uids{a, b}, nil
}
