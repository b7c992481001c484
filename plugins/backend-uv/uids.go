package uvbackend

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// uids is an inclusive range.
type uids struct{ first, last int }

func (u uids) String() string { return fmt.Sprintf("%d-%d", u.first, u.last) }
func (u uids) count() int     { return u.last - u.first + 1 }

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
