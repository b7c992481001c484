package fake

import (
	"bytes"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func getName(p *process, rest string) error {
	value, ok := p.vars.get(rest)
	if !ok {
		return p.crash(1, "NameError", "name "+strconv.Quote(rest)+" is not defined")
	}
	return p.println(executor.Stdout, value)
}

// addTo adds a number to a name's value.
func addTo(p *process, rest string) error {
	w := words(rest, 2)
	value, ok := p.vars.get(w[0])
	if !ok {
		return p.crash(1, "NameError", "name "+strconv.Quote(w[0])+" is not defined")
	}
	a, errA := strconv.Atoi(value)
	b, errB := strconv.Atoi(w[1])
	if errA != nil || errB != nil {
		return &usageError{"not numbers: " + value + " and " + w[1]}
	}
	p.vars.set(w[0], strconv.Itoa(a+b))
	return nil
}

// showName displays the value of a name as the value of the last expression.
func showName(p *process, rest string) error {
	value, ok := p.vars.get(rest)
	if !ok {
		return p.crash(1, "NameError", "name "+strconv.Quote(rest)+" is not defined")
	}
	return p.display("text/plain", []byte(value), true)
}

func displaySize(p *process, rest string) error {
	w := words(rest, 2)
	n, err := size(w[1])
	if err != nil {
		return err
	}
	return p.display(w[0], bytes.Repeat([]byte("x"), int(min(n, 64<<20))), false)
}

// display emits a Display within the bounds of rule EV-09. It leaves out forms that are too large, and counts Displays beyond
// the maximum.
func (p *process) display(mime string, data []byte, value bool) error {
	r := p.run
	r.mu.Lock()
	r.displays++
	dropped := r.displays > executor.MaxDisplays
	if dropped {
		r.result.DisplaysDropped++
	}
	r.mu.Unlock()
	if dropped {
		return nil
	}
	body := executor.Display{Data: map[string][]byte{mime: data}, Value: value}
	if len(mime)+len(data) > executor.MaxDisplayData {
		body.Data, body.Truncated = map[string][]byte{}, true
	}
	if !r.feed.put(p.stopped(), body) {
		return p.death()
	}
	return nil
}

// later prints a text after a while. In a Session the Execution may have ended by then. Without a Session later ends with the
// program.
func later(p *process, rest string) error {
	w := words(rest, 2)
	wait, err := time.ParseDuration(w[0])
	if err != nil {
		return &usageError{err.Error()}
	}
	data := []byte(text(w[1]) + "\n")
	r := p.run
	p.afterwards(wait, func() { r.write(r.killed.Done(), executor.Stdout, data) }, func(s *session) { s.say(executor.Stdout, data) })
	return nil
}

// laterFile creates an empty file after a while.
func laterFile(p *process, rest string) error {
	w := words(rest, 2)
	wait, err := time.ParseDuration(w[0])
	if err != nil {
		return &usageError{err.Error()}
	}
	clean, err := inside(w[1], ".")
	if err != nil {
		return p.crash(1, "PermissionError", strconv.Quote(w[1]))
	}
	made := p.run.tree
	touch := func() { _ = made.put(clean, &file{mode: 0o644, changed: true}, -1) } // without a limit it cannot fail
	p.afterwards(wait, touch, func(*session) { touch() })
	return nil
}

// afterwards calls resident after a while if the program is code in a Session's interpreter, and child otherwise. child is the
// work of a descendant of the program.
func (p *process) afterwards(wait time.Duration, child func(), resident func(*session)) {
	r := p.run
	if !p.resident() {
		r.children.Go(func() {
			if r.pause(wait) {
				child()
			}
		})
		return
	}
	s := r.session
	s.later(func(life <-chan struct{}) {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			resident(s)
		case <-life:
		}
	})
}

// symlink TARGET PATH creates a link. TARGET may lie outside the work folder, but the fake never follows a link out.
func symlink(p *process, rest string) error {
	w := words(rest, 2)
	clean, err := inside(w[1], ".")
	if err != nil {
		return p.crash(1, "PermissionError", strconv.Quote(w[1]))
	}
	return p.run.tree.put(clean, &file{link: w[0], mode: 0o777, changed: true}, -1)
}

func mkfifo(p *process, rest string) error {
	clean, err := inside(text(rest), ".")
	if err != nil {
		return p.crash(1, "PermissionError", strconv.Quote(rest))
	}
	return p.run.tree.put(clean, &file{pipe: true, mode: 0o644, changed: true}, -1)
}
