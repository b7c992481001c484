package uvbackend

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/runner"
)

// uids is an inclusive range.
type uids struct{ first, last int }

func (u uids) String() string { return fmt.Sprintf("%d-%d", u.first, u.last) }
func (u uids) count() int     { return u.last - u.first + 1 }

func (u uids) has(uid int) bool { return u.first <= uid && uid <= u.last }

// UIDs returns the range of uids that run programs. It reports false where programs run as the plugin's own user: without
// root, with the isolation none, and for a range that Validate refuses.
func (c Config) UIDs() (first, last int, ok bool) {
	c = c.withDefaults()
	if os.Geteuid() != 0 || c.Isolation == IsolationNone {
		return 0, 0, false
	}
	r, err := parseUIDs(c.RunAs)
	return r.first, r.last, err == nil
}

// uidPool hands the uids of a range to slots and to questions to interpreters.
type uidPool struct {
	dir  string // of the lock files
	uids uids
	// end kills what is left under a uid, and what lives in a folder. Tests have processes that do not die.
	end   func(uid int, dir string) error
	log   *slog.Logger
	mu    sync.Mutex
	stuck []*uidClaim
}

func newUIDPool(dir string, r uids, log *slog.Logger) *uidPool {
	return &uidPool{dir: dir, uids: r, log: log, end: func(uid int, dir string) error {
		_, err := runner.KillLeftovers(dir, uid, 1)
		return err
	}}
}

// take claims a uid of r of which no process is left. A uid that cannot be cleared is passed over. Codes: exhausted.
func (p *uidPool) take(r uids) (*uidClaim, error) {
	for {
		c, dirty, err := claimUID(p.dir, r)
		if err != nil {
			return nil, err
		}
		if !dirty || p.cleared(c, "") {
			return c, nil
		}
	}
}

// cleared ends what is left under a uid and what lives in a folder, and reports whether that worked. Otherwise the lock stays
// held while we live, so that nobody gets the uid, and marked, so that the next start tries again.
func (p *uidPool) cleared(c *uidClaim, dir string) bool {
	err := p.end(c.uid, dir)
	if err == nil {
		return true
	}
	p.log.Warn("a uid is not used any more: its processes do not die", "uid", c.uid, "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = append(p.stuck, c)
	return false
}

// sweep ends what is left under uids whose last user died with them in hand.
func (p *uidPool) sweep() {
	if err := sweepUIDs(p.dir, p.uids, func(uid int) error { return p.end(uid, "") }); err != nil {
		p.log.Warn("left-over processes", "error", err)
	}
}

// close lets go of the uids that could not be cleared. All others have been given back.
func (p *uidPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.stuck {
		c.lock.Close() // its mark stays
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
