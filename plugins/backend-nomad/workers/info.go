package workers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// Info implements executor.Backend. The capabilities are those that all workers have, and the capacity is their sum.
func (p *Pool) Info(context.Context) (executor.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.infoLocked(), nil
}

// infoLocked also notes what is promised.
func (p *Pool) infoLocked() executor.Info {
	var answering, usable []*member
	info := executor.Info{Name: p.name, Type: "nomad", Details: map[string]string{}, Metrics: map[string]float64{}}
	for _, id := range slices.Sorted(maps.Keys(p.members)) {
		m := p.members[id]
		info.Details["worker "+m.name()] = m.describe()
		switch {
		case m.err != nil && m.listed:
			info.Warnings = append(info.Warnings, "worker "+m.name()+" does not answer: "+m.err.Error())
		case m.err == nil && m.listed && m.info.Healthy:
			usable = append(usable, m)
			fallthrough
		case m.err == nil:
			answering = append(answering, m)
		}
	}
	info.Details["service"] = p.config.Service
	info.Metrics["workers"], info.Metrics["workers_usable"] = float64(len(p.members)), float64(len(usable))
	if info.Healthy = len(usable) > 0; info.Healthy {
		answering = usable // what drains decides about nothing new
	} else {
		info.Message = p.aloneLocked()
	}
	if len(answering) == 0 {
		info.Capabilities = p.promised
		return info
	}
	var all []executor.Info
	for _, m := range answering {
		all = append(all, m.info)
	}
	merge(&info, all)
	p.promised = info.Capabilities
	return info
}

// describe describes m for people.
func (m *member) describe() string {
	text := fmt.Sprintf("%s, %d of %d slots taken, %d sessions", m.info.Type, m.running+m.others, m.info.Capacity, len(m.sessions))
	if m.err != nil {
		text = "does not answer"
	} else if !m.info.Healthy {
		text += ", " + m.info.Message
	}
	if !m.listed {
		text += ", not registered any more"
	}
	if m.Allocation != "" {
		text += ", allocation " + m.Allocation
	}
	return text
}

// merge adds to info what all have in common, and the sums.
func merge(info *executor.Info, all []executor.Info) {
	can := all[0].Capabilities
	versions, types := map[string]bool{}, map[string]bool{}
	for _, i := range all {
		can = both(can, i.Capabilities)
		info.Capacity += i.Capacity
		versions[i.Version], types[i.Type] = true, true
		for name, value := range i.Metrics {
			info.Metrics[name] += value
		}
		for _, w := range i.Warnings {
			if !slices.Contains(info.Warnings, w) {
				info.Warnings = append(info.Warnings, w)
			}
		}
	}
	info.Version = strings.Join(slices.Sorted(maps.Keys(versions)), ", ")
	info.Details["backends"] = strings.Join(slices.Sorted(maps.Keys(types)), ", ")
	can.Languages = common(all, func(i executor.Info) ([]executor.Language, bool) { return i.Capabilities.Languages, false })
	// A worker that takes any image has the Python of the image.
	can.PythonVersions = common(all, func(i executor.Info) ([]string, bool) { return i.Capabilities.PythonVersions, i.Capabilities.Images })
	can.PythonDownloads = nil // a version at hand here may have to be installed there
	info.Images = common(all, func(i executor.Info) ([]string, bool) { return i.Images, i.Capabilities.Images })
	can.LocalPath = true // this process is on the caller's machine, and sends the bytes on
	info.Capabilities = can
}

// isolations are the levels, weakest first.
var isolations = []executor.Isolation{executor.IsolationNone, executor.IsolationNamespaces, executor.IsolationContainer, executor.IsolationVM}

// both returns what a and b promise.
func both(a, b executor.Capabilities) executor.Capabilities {
	if slices.Index(isolations, b.Isolation) < slices.Index(isolations, a.Isolation) {
		a.Isolation = b.Isolation
	}
	to, from := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b)
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Bool {
			f.SetBool(f.Bool() && from.Field(i).Bool())
		}
	}
	return a
}

// common returns the entries that the lists of all have, in the order of the first list. A list that has everything is passed over.
func common[T comparable](all []executor.Info, list func(executor.Info) (entries []T, everything bool)) []T {
	var result []T
	first := true
	for _, i := range all {
		entries, everything := list(i)
		switch {
		case everything:
		case first:
			result, first = slices.Clone(entries), false
		default:
			result = slices.DeleteFunc(result, func(e T) bool { return !slices.Contains(entries, e) })
		}
	}
	return result
}
