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
	p.afterwards(func(stop <-chan struct{}) bool { return pause(stop, wait) }, func(say func([]byte)) { say(data) })
	return nil
}

// laterWhen prints a text as later does, but when a file is there. It then creates an empty file.
func laterWhen(p *process, rest string) error {
	w := words(rest, 3)
	clean, err := inside(w[1], ".")
	if err != nil {
		return p.crash(1, "PermissionError", strconv.Quote(w[1]))
	}
	data := []byte(text(w[2]) + "\n")
	files := p.run.tree
	p.afterwards(func(stop <-chan struct{}) bool { return appears(stop, files, w[0]) }, func(say func([]byte)) {
		say(data)
		_ = files.put(clean, &file{mode: 0o644, changed: true}, -1) // without a limit it cannot fail
	})
	return nil
}

// await waits until a file is there.
func await(p *process, rest string) error {
	if !appears(p.stopped(), p.run.tree, text(rest)) {
		return p.death()
	}
	return nil
}

// tick prints until a file is there.
func tick(p *process, rest string) error {
	for p.run.tree.get(text(rest)) == nil {
		if err := p.sleep(20 * time.Millisecond); err != nil {
			return err
		}
		if err := p.println(executor.Stdout, "."); err != nil {
			return err
		}
	}
	return nil
}

// appears waits until files has one of that name. It reports false when stop is closed before.
func appears(stop <-chan struct{}, files *tree, name string) bool {
	for files.get(name) == nil {
		if !pause(stop, time.Millisecond) { // a tree tells nobody of its changes
			return false
		}
	}
	return true
}

// afterwards calls act when ready has returned true. If the program is code in a Session's interpreter, both happen in the background
// of the Session, and otherwise in a descendant of the program. say writes to stdout.
func (p *process) afterwards(ready func(stop <-chan struct{}) bool, act func(say func([]byte))) {
	r := p.run
	if !p.resident() {
		r.children.Go(func() {
			if ready(r.killed.Done()) {
				act(func(data []byte) { r.write(r.killed.Done(), executor.Stdout, data) })
			}
		})
		return
	}
	s := r.session
	s.later(func(life <-chan struct{}) {
		if ready(life) {
			act(func(data []byte) { s.say(executor.Stdout, data) })
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
