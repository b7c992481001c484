package main

import (
	"cmp"
	"context"
	"slices"
)

// Status is how a part ended.
type Status string

// What can become of a part.
const (
	Passed     Status = "ok"
	Failed     Status = "FAILED"
	NotStarted Status = "not run"
)

// schedule runs parts, longest first, each as soon as the parts before it have passed and its resources are free. run blocks
// while a part runs, and is called from several goroutines. After a failure, unless goOn, and after the end of ctx no part is
// started, and the parts that run are waited for. A part that needs more than there is needs all.
func schedule(ctx context.Context, parts []Part, capacity map[string]int, goOn bool, run func(context.Context, Part) Status) map[string]Status {
	free := map[string]int{}
	need := map[string]map[string]int{}
	for name, n := range capacity {
		free[name] = n
	}
	for _, p := range parts {
		need[p.Name] = map[string]int{}
		all, _ := p.resources() // checkParts has read it
		for name, n := range all {
			if _, known := capacity[name]; !known {
				free[name] = max(free[name], 1) // one of what nobody counts
			}
			need[p.Name][name] = n
		}
	}
	for _, uses := range need {
		for name, n := range uses {
			uses[name] = min(n, free[name])
		}
	}

	waiting := byLength(parts)
	status := map[string]Status{}
	for _, p := range parts {
		status[p.Name] = NotStarted
	}
	type end struct {
		part   Part
		status Status
	}
	ends := make(chan end)
	running, failed := 0, false
	ready := func(p Part) bool {
		for _, before := range p.After {
			if s, here := status[before]; here && s != Passed {
				return false
			}
		}
		for name, n := range need[p.Name] {
			if free[name] < n {
				return false
			}
		}
		return true
	}
	for {
		for i := 0; i < len(waiting) && !failed && ctx.Err() == nil; {
			p := waiting[i]
			if !ready(p) {
				i++
				continue
			}
			waiting = slices.Delete(waiting, i, i+1)
			for name, n := range need[p.Name] {
				free[name] -= n
			}
			running++
			go func() { ends <- end{p, run(ctx, p)} }()
		}
		if running == 0 {
			return status
		}
		e := <-ends
		running--
		status[e.part.Name] = e.status
		failed = failed || e.status != Passed && !goOn
		for name, n := range need[e.part.Name] {
			free[name] += n
		}
	}
}

// byLength orders parts by the time from their begin to the end of the last part that waits for them, longest first.
func byLength(parts []Part) []Part {
	rest := map[string]int{}
	for _, p := range slices.Backward(parts) {
		rest[p.Name] += p.Seconds
		for _, before := range p.After {
			rest[before] = max(rest[before], rest[p.Name])
		}
	}
	sorted := slices.Clone(parts)
	slices.SortStableFunc(sorted, func(a, b Part) int { return cmp.Compare(rest[b.Name], rest[a.Name]) })
	return sorted
}
