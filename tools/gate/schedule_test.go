package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary runs parts that only sleep, and notes what happens when.
type diary struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
	fails string
}

func (d *diary) run(_ context.Context, p Part) Status {
	d.note("+" + p.Name)
	time.Sleep(time.Duration(p.Seconds) * time.Second)
	d.note("-" + p.Name)
	if p.Name == d.fails {
		return Failed
	}
	return Passed
}

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%d%s", int(time.Since(d.begin).Seconds()), what))
}

func (d *diary) String() string {
	slices.SortStableFunc(d.lines, func(a, b string) int { // what happens in the same second has no order
		var x, y int
		_, _ = fmt.Sscan(strings.FieldsFunc(a, func(r rune) bool { return r == '+' || r == '-' })[0], &x)
		_, _ = fmt.Sscan(strings.FieldsFunc(b, func(r rune) bool { return r == '+' || r == '-' })[0], &y)
		if x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	return strings.Join(d.lines, " ")
}

func TestPartsStartLongestFirstAsTheirResourcesAreFree(t *testing.T) {
	for name, c := range map[string]struct {
		parts []Part
		fails string
		goOn  bool
		want  string
	}{
		"longest first, two at once": {
			parts: []Part{{Name: "a", Uses: "cpu:100", Seconds: 1}, {Name: "b", Uses: "cpu:100", Seconds: 5}, {Name: "c", Uses: "cpu:100", Seconds: 3}},
			want:  "0+b 0+c 3+a 3-c 4-a 5-b",
		},
		"one after another for one resource, a smaller part beside them": {
			parts: []Part{{Name: "a", Uses: "uids:1", Seconds: 5}, {Name: "b", Uses: "uids:1", Seconds: 4}, {Name: "c", Uses: "cpu:100", Seconds: 3}},
			want:  "0+a 0+c 3-c 5+b 5-a 9-b",
		},
		"a part with more than there is takes all": {
			parts: []Part{{Name: "a", Uses: "cpu:900", Seconds: 5}, {Name: "b", Uses: "cpu:100", Seconds: 4}},
			want:  "0+a 5+b 5-a 9-b",
		},
		"what much waits for is long": {
			parts: []Part{{Name: "tool", Uses: "cpu:200", Seconds: 1}, {Name: "a", Uses: "cpu:200", Seconds: 5, After: []string{"tool"}}, {Name: "b", Uses: "cpu:200", Seconds: 4}},
			want:  "0+tool 1+a 1-tool 6+b 6-a 10-b",
		},
		"after a failure nothing begins, and what runs ends": {
			parts: []Part{{Name: "a", Uses: "cpu:100", Seconds: 5}, {Name: "b", Uses: "cpu:100", Seconds: 4}, {Name: "c", Uses: "cpu:100", Seconds: 3}},
			fails: "b",
			want:  "0+a 0+b 4-b 5-a",
		},
		"where a run goes on after a failure, only what comes after it does not begin": {
			parts: []Part{{Name: "a", Uses: "cpu:200", Seconds: 5}, {Name: "b", Uses: "cpu:200", Seconds: 4}, {Name: "c", Seconds: 3, After: []string{"a"}}},
			fails: "a", goOn: true,
			want: "0+a 5+b 5-a 9-b",
		},
		"what comes after a part does not begin without it": {
			parts: []Part{{Name: "a", Uses: "cpu:100", Seconds: 5}, {Name: "b", Uses: "cpu:100", Seconds: 9, After: []string{"a"}}},
			want:  "0+a 5+b 5-a 14-b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := checkParts(named(c.parts)); err != nil {
					t.Fatal(err)
				}
				d := &diary{begin: time.Now(), fails: c.fails}
				status := schedule(t.Context(), c.parts, map[string]int{"cpu": 200, "uids": 1}, c.goOn, d.run)
				if got := d.String(); got != c.want {
					t.Errorf("\n got %s\nwant %s", got, c.want)
				}
				for _, p := range c.parts {
					want := Passed
					switch {
					case p.Name == c.fails:
						want = Failed
					case !strings.Contains(c.want, "-"+p.Name):
						want = NotStarted
					}
					if status[p.Name] != want {
						t.Errorf("part %s: %s, want %s", p.Name, status[p.Name], want)
					}
				}
			})
		})
	}
}

// named gives parts a command.
func named(parts []Part) []Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Command = []string{"true"}
	}
	return parts
}

func TestAfterAnInterruptNoPartBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := &diary{begin: time.Now()}
		time.AfterFunc(2*time.Second, func() { cancel(errors.New("interrupted")) })
		status := schedule(ctx, []Part{{Name: "a", Uses: "uids:1", Seconds: 3}, {Name: "b", Uses: "uids:1", Seconds: 1}}, map[string]int{"uids": 1}, false, d.run)
		if d.String() != "0+a 3-a" || status["b"] != NotStarted {
			t.Errorf("%s, b %s", d, status["b"])
		}
	})
}

func TestTheTableIsRight(t *testing.T) {
	if err := checkParts(parts); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string][]Part{
		"twice":     {{Name: "a", Command: []string{"true"}, Seconds: 1}, {Name: "a", Command: []string{"true"}, Seconds: 1}},
		"nothing":   {{Name: "a", Seconds: 1}},
		"both":      {{Name: "a", Command: []string{"true"}, Test: []string{"."}, Seconds: 1}},
		"no time":   {{Name: "a", Command: []string{"true"}}},
		"resource":  {{Name: "a", Command: []string{"true"}, Seconds: 1, Uses: "cpu"}},
		"unordered": {{Name: "a", Command: []string{"true"}, Seconds: 1, After: []string{"b"}}, {Name: "b", Command: []string{"true"}, Seconds: 1}},
	} {
		if checkParts(wrong) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAChosenPartBringsWhatItComesAfter(t *testing.T) {
	table := []Part{{Name: "build"}, {Name: "nomad", After: []string{"build"}}, {Name: "lint"}, {Name: "e2e", After: []string{"nomad"}}}
	var names []string
	for _, p := range withNeeded(table, func(p Part) bool { return p.Name == "e2e" }) {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "build nomad e2e" {
		t.Error(got)
	}
}
